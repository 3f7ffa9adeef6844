"""A dialogue: the protocol of one connection, without I/O.

    greeting() -> send -> greeted(frame)      once, until greeted() is true
    ask(api, values) -> send -> answer(asked, frame)

A frame is given without its four bytes of size. Brokers answer in the order of the questions, so
both faces keep what was asked in a queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from struct import error
from typing import Any, NamedTuple
from uuid import UUID

from moldau.peer.errors import MalformedAnswer, Refused, UnsupportedByBroker
from moldau.wire.apis import ORIGIN, VERSIONS, Api, is_flexible
from moldau.wire.errors import Error
from moldau.wire.fetch.codec import fetch_codec
from moldau.wire.fetch.request import FetchRequest
from moldau.wire.fetch.response import FetchAnswer, FetchBeginning
from moldau.wire.headers import request_frame
from moldau.wire.messages import Values, decode_response, encode_request
from moldau.wire.primitives import INT32, MalformedRequest, TopicKey, skip_tags

SOFTWARE = "moldau"
# Every broker since 2.4 answers this one; older ones answer with an error and their range.
GREETING_VERSION = 3
# From this version on, Fetch names topics by their ids.
_FETCH_BY_ID = 13


class Asked(NamedTuple):
    """A question that is under way."""

    api: int
    version: int
    correlation_id: int


@lru_cache(32)
def _offer(version: int, body: bytes) -> tuple[Mapping[int, tuple[int, int]], Mapping[str, int]]:
    """Return the versions and features in the answer to a greeting.

    It is a long one, and all brokers of a cluster give the same to every connection.
    """
    response = decode_response(Api.API_VERSIONS, version, memoryview(body))
    versions = {
        int(entry.api_key): (int(entry.min_version), int(entry.max_version))
        for entry in response.api_keys
    }
    features = getattr(response, "finalized_features", ())
    return versions, {str(each.name): int(each.max_version_level) for each in features}


class Dialogue:
    """Correlation ids and versions of one connection; `address` is for messages to people.

    `origin` is a token for the address of somebody else for whom we ask, if a broker gave us one.
    """

    def __init__(self, address: str, client_id: str, origin: str = "") -> None:
        self.address = address
        self.client_id = client_id
        self._origin = origin
        self._next_id = 0
        self._greeting_version = GREETING_VERSION
        self._versions: Mapping[int, tuple[int, int]] = {}
        # The features that the cluster has finalized, as of the greeting.
        self.levels: Mapping[str, int] = {}

    def greeting(self) -> tuple[Asked, bytes]:
        """Return the first request, which asks for the broker's versions."""
        values = {
            "client_software_name": ORIGIN if self._origin else SOFTWARE,
            "client_software_version": self._origin or "0",
        }
        return self._framed(
            Api.API_VERSIONS,
            self._greeting_version,
            encode_request(Api.API_VERSIONS, self._greeting_version, values),
        )

    def greeted(self, asked: Asked, frame: memoryview) -> bool:
        """Learn the broker's versions; False when it wants the greeting in an older version."""
        body = self._body(asked, frame)
        code = int.from_bytes(body[:2], "big", signed=True)
        # KIP-511: a version that the broker does not know is answered in version 0, which not
        # every peer takes to heart; so the rest of such an answer is not looked at.
        if code == Error.UNSUPPORTED_VERSION and asked.version > 0:
            self._greeting_version = 0
            return False
        if code != Error.NONE:
            raise Refused(code, f"{self.address} refused ApiVersions")
        try:
            self._versions, self.levels = _offer(asked.version, bytes(body))
        except MalformedRequest as reason:
            raise MalformedAnswer(self.address, str(reason)) from None
        return True

    def speaks(self, api: Api) -> bool:
        """Return whether there is a version that both sides speak."""
        ours, (low, high) = VERSIONS[api], self._versions.get(api, (0, -1))
        return max(ours.first, low) <= min(ours.last, high)

    def version_of(self, api: Api, at_most: int | None = None) -> int:
        """Return the newest version that both sides speak; UnsupportedByBroker if there is none."""
        ours = VERSIONS[api]
        low, high = self._versions.get(api, (0, -1))
        version = min(ours.last if at_most is None else min(ours.last, at_most), high)
        if version < max(ours.first, low):
            theirs = f"v{low} to v{high}" if high >= 0 else "in no version"
            raise UnsupportedByBroker(
                self.address, api.name, f"v{ours.first} to v{ours.last}", theirs
            )
        return version

    def ask(self, api: Api, values: Values, at_most: int | None = None) -> tuple[Asked, bytes]:
        """Return a request in the newest common version, with those of `values` that it has."""
        version = self.version_of(api, at_most)
        return self._framed(api, version, encode_request(api, version, values))

    def answer(self, asked: Asked, frame: memoryview) -> Any:
        """kio's object of the answer; MalformedAnswer where the bytes are not one."""
        return self._decoded(asked.api, asked.version, self._body(asked, frame))

    def relay(self, api: int, version: int, body: bytes) -> tuple[Asked, bytes]:
        """Return a request that is already encoded, in a version that the broker supports."""
        return self._framed(api, version, body)

    def relayed(self, asked: Asked, frame: memoryview) -> bytes:
        """Return the body of the answer as it came."""
        return bytes(self._body(asked, frame))

    def ask_fetch(self, request: FetchRequest) -> tuple[Asked, bytes]:
        """Return a Fetch, in the newest version that names topics as the request does."""
        version = self.version_of(Api.FETCH)
        if version >= _FETCH_BY_ID and any(isinstance(key, str) for key, _ in request.topics):
            version = self.version_of(Api.FETCH, _FETCH_BY_ID - 1)
        return self._framed(Api.FETCH, version, fetch_codec(version).encode_request(request))

    def fetch_key(self, topic: str, topic_id: UUID | None) -> TopicKey:
        """Return how a Fetch names a topic: by its id, if it has one and the broker takes ids."""
        if topic_id is None or self.version_of(Api.FETCH) < _FETCH_BY_ID:
            return topic
        return topic_id

    def fetched(self, asked: Asked, frame: memoryview) -> FetchAnswer:
        """Return the answer to a fetch; its records are views of `frame`."""
        body = self._body(asked, frame)
        try:
            return fetch_codec(asked.version).decode_response(body)
        except MalformedRequest as reason:
            raise MalformedAnswer(self.address, f"not a Fetch response: {reason}") from None

    def fetch_begun(self, asked: Asked, start: memoryview, size: int) -> FetchBeginning | None:
        """Parse the first bytes of a response of `size`, with positions in it; None if there are
        too few.
        """
        body = self._body(asked, start)
        before = len(start) - len(body)
        try:
            begun = fetch_codec(asked.version).decode_beginning(body)
            end = before + begun.records_at + begun.records_size
            if end > size:
                raise MalformedRequest(f"{begun.records_size} bytes of records extend beyond it")
        except MalformedRequest as reason:
            if len(start) < size:
                return None
            raise MalformedAnswer(self.address, f"not a Fetch response: {reason}") from None
        return begun._replace(records_at=before + begun.records_at)

    def _framed(self, api: int, version: int, body: bytes) -> tuple[Asked, bytes]:
        self._next_id = (self._next_id + 1) & 0x7FFF_FFFF
        asked = Asked(api, version, self._next_id)
        return asked, request_frame(api, version, self._next_id, self.client_id, body)

    def _body(self, asked: Asked, frame: memoryview) -> memoryview:
        try:
            (correlation_id,) = INT32.unpack_from(frame)
            position = 4
            if asked.api != Api.API_VERSIONS and is_flexible(asked.api, asked.version):
                position = skip_tags(frame, position)
        except (error, IndexError, MalformedRequest):
            reason = f"{len(frame)} bytes are not a response"
            raise MalformedAnswer(self.address, reason) from None
        if correlation_id != asked.correlation_id:
            reason = f"it answered request {correlation_id} instead of {asked.correlation_id}"
            raise MalformedAnswer(self.address, reason)
        return frame[position:]

    def _decoded(self, api: int, version: int, body: memoryview) -> Any:
        try:
            # Copied, since kio's objects keep views, and the buffer is used again.
            return decode_response(api, version, memoryview(bytes(body)))
        except MalformedRequest as reason:
            raise MalformedAnswer(self.address, str(reason)) from None
