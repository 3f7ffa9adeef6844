"""The codec of Fetch: both messages in one version."""

from __future__ import annotations

from functools import cache

from moldau.wire.fetch.request import FetchRequestCodec
from moldau.wire.fetch.response import FetchResponseCodec


class FetchCodec:
    """The functions that read and write the requests and responses of one version.

    `by_id` is whether topics are named by their ids, `flexible` whether headers have tags.
    """

    def __init__(self, version: int) -> None:
        self.flexible = version >= 12
        self.by_id = version >= 13
        self.has_sessions = version >= 7
        requests, responses = FetchRequestCodec(version), FetchResponseCodec(version)
        # Held bound: a request is worth no further step.
        self.decode_request = requests.decode
        self.encode_request = requests.encode
        self.decode_response = responses.decode
        self.decode_beginning = responses.decode_beginning
        self.encode_response = responses.encode


@cache
def fetch_codec(version: int) -> FetchCodec:
    """Return the codec of a version."""
    return FetchCodec(version)
