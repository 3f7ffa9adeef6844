"""Frames and headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.wire.apis import Api
from moldau.wire.headers import CLIENT_ID, read_request_header, request_frame, response_frame
from moldau.wire.primitives import MalformedRequest, read_uvarint, uvarint


@pytest.mark.parametrize("version", [0, 8, 9, 13])
@pytest.mark.parametrize("client_id", [None, "", "söme client"])
def test_a_request_header_is_read_back(version: int, client_id: str | None) -> None:
    frame = request_frame(Api.METADATA, version, 42, client_id, b"body")
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    view = memoryview(frame)[4:]
    api, read_version, correlation_id, end, start = read_request_header(view)
    assert (api, read_version, correlation_id) == (Api.METADATA, version, 42)
    assert view[CLIENT_ID:end] == (client_id or "").encode()
    assert bytes(view[start:]) == b"body"


def test_tagged_fields_in_a_header_are_skipped() -> None:
    frame = request_frame(Api.METADATA, 9, 42, "c", b"body")
    tagged = frame[4:15] + b"\x01\x05\x03abc" + b"body"
    *_, end, start = read_request_header(memoryview(tagged))
    assert tagged[CLIENT_ID:end] == b"c"
    assert tagged[start:] == b"body"


def test_the_response_header_of_api_versions_never_has_tags() -> None:
    assert response_frame(Api.API_VERSIONS, 3, 1, b"x") == b"\0\0\0\x05\0\0\0\x01x"
    assert response_frame(Api.METADATA, 9, 1, b"x") == b"\0\0\0\x06\0\0\0\x01\0x"
    assert response_frame(Api.METADATA, 8, 1, b"x") == b"\0\0\0\x05\0\0\0\x01x"


@given(st.binary(max_size=40))
def test_arbitrary_bytes_have_a_header_or_are_malformed(frame: bytes) -> None:
    try:
        *_, end, start = read_request_header(memoryview(frame))
    except MalformedRequest:
        return
    assert CLIENT_ID <= end <= start <= len(frame)


@given(st.integers(0, 2**35 - 1))
def test_a_varint_is_read_back(value: int) -> None:
    data = b"x" + uvarint(value) + b"y"
    assert read_uvarint(data, 1) == (value, len(data) - 1)
