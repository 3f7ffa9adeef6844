"""Tagged fields that a schema does not know are skipped wherever they stand (KIP-482)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.wire.apis import Api
from moldau.wire.messages import decode_request, decode_response, encode_request, encode_response
from moldau.wire.primitives import uvarint

_tags = st.dictionaries(st.integers(40, 100_000), st.binary(max_size=200), max_size=5)


def _section(tags: dict[int, bytes], known: bytes = b"", known_count: int = 0) -> bytes:
    """The tagged fields of a struct: those that the schema knows come first, by their numbers."""
    section = uvarint(len(tags) + known_count) + known
    for tag in sorted(tags):
        section += uvarint(tag) + uvarint(len(tags[tag])) + tags[tag]
    return section


@given(in_topic=_tags, in_body=_tags)
def test_they_are_skipped_at_every_depth_of_a_request(
    in_topic: dict[int, bytes], in_body: dict[int, bytes]
) -> None:
    plain = encode_request(Api.METADATA, 9, {"topics": [{"name": "x"}, {"name": "y"}]})
    topic, body = b"\x02x", bytes([1, 0, 0])
    assert plain == b"\x03" + topic + b"\x00" + b"\x02y\x00" + body + b"\x00"
    tagged = b"\x03" + topic + _section(in_topic) + b"\x02y\x00" + body + _section(in_body)
    assert decode_request(Api.METADATA, 9, memoryview(tagged)) == decode_request(
        Api.METADATA, 9, memoryview(plain)
    )


@given(inside=_tags, beside=_tags)
def test_those_beside_and_inside_of_a_known_one_are_skipped(
    inside: dict[int, bytes], beside: dict[int, bytes]
) -> None:
    values = {"node_endpoints": [{"node_id": 1, "host": "h", "port": 2}]}
    plain = encode_response(Api.FETCH, 16, values)
    head = bytes(4 + 2 + 4) + b"\x01"
    endpoint = bytes([0, 0, 0, 1]) + b"\x02h" + bytes([0, 0, 0, 2]) + b"\x00"
    known = b"\x02" + endpoint + b"\x00"
    assert plain == head + b"\x01\x00" + uvarint(len(known)) + known
    known = b"\x02" + endpoint + _section(inside)
    known = b"\x00" + uvarint(len(known)) + known
    tagged = head + _section(beside, known, 1)
    assert decode_response(Api.FETCH, 16, memoryview(tagged)) == decode_response(
        Api.FETCH, 16, memoryview(plain)
    )
