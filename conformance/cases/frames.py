"""Bytes that are no request, or not one that the broker knows."""

from __future__ import annotations

import struct

from conformance.connection import HungUp, NoAnswer
from conformance.registry import scenario
from conformance.session import HUNG_UP, NO_ANSWER, Session
from moldau.wire.apis import VERSIONS, Api, is_flexible
from moldau.wire.headers import request_frame
from moldau.wire.messages import encode_request

_PATIENCE_S = 1.5
_TRANSACTIONS = {Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN}
_TRANSACTIONS |= {Api.END_TXN, Api.TXN_OFFSET_COMMIT}


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _head(api: int, version: int, correlation_id: int = 7, client: bytes | None = b"c") -> bytes:
    size = -1 if client is None else len(client)
    return struct.pack(">hhih", api, version, correlation_id, size) + (client or b"")


@scenario("Frames")
def sizes(s: Session) -> None:
    for what, data in (
        ("size zero", struct.pack(">i", 0)),
        ("size -1", struct.pack(">i", -1)),
        ("the smallest number", struct.pack(">i", -(2**31))),
        ("size 1", _sized(b"x")),
        ("size 7", _sized(b"x" * 7)),
        ("over the limit", struct.pack(">i", 104857601)),
        ("the largest number", struct.pack(">i", 2**31 - 1)),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("TLS", bytes.fromhex("160301020001000 1fc0303".replace(" ", "")) + bytes(100)),
    ):
        s.frame(what, None, data, _PATIENCE_S)


@scenario("Frames")
def unknown_apis(s: Session) -> None:
    for api in (-1, 4, 5, 6, 7, 999, 32767):
        s.frame(f"api {api}", None, _sized(_head(api, 0) + bytes(20)), _PATIENCE_S)


@scenario("Frames")
def unknown_versions(s: Session) -> None:
    for api, version in ((Api.PRODUCE, 0), (Api.PRODUCE, 2), (Api.FETCH, 3), (Api.LIST_OFFSETS, 0)):
        s.frame(f"{api.name} {version}", None, _sized(_head(api, version) + bytes(30)), _PATIENCE_S)


@scenario("Frames")
def every_api(s: Session) -> None:
    """Versions that nobody knows, and bodies that are none, in all APIs that both offer."""
    for api in Api:
        if api in _TRANSACTIONS or api is Api.API_VERSIONS:
            continue
        for version in (-1, 99):
            frame = _sized(_head(api, version) + bytes(30))
            s.frame(f"{api.name} {version}", None, frame, _PATIENCE_S)
        version = max(VERSIONS[api].first, VERSIONS[api].last - 1)
        tags = b"\0" if is_flexible(api, version) else b""
        for what, body in (("nothing", b""), ("nonsense", b"\xff" * 40), ("a byte", b"\x01")):
            _answered(s, f"{api.name} {what}", _sized(_head(api, version) + tags + body))


@scenario("Frames")
def bodies_of_api_versions(s: Session) -> None:
    for what, body in (
        ("no names", b""),
        ("half a name", b"\x05te"),
        ("no version", b"\x05test"),
        ("a null name", b"\x00\x021\x00"),
        ("a null version", b"\x02a\x00\x00"),
        ("no tags", b"\x02a\x021"),
        ("an empty name", b"\x01\x021\x00"),
        ("all of it", b"\x02a\x021\x00"),
        ("more than that", b"\x02a\x021\x00more"),
    ):
        for version in (3, 4):
            _answered(s, f"{what} in version {version}", _sized(_head(18, version) + b"\0" + body))


def _answered(s: Session, what: str, data: bytes) -> None:
    """Only whether there is an answer: its bytes hold the port and the cluster's id."""
    connection = s.connect()
    try:
        connection.exchange(data, _PATIENCE_S)
        s.note(what, "answered")
    except HungUp:
        s.note(what, HUNG_UP)
    except NoAnswer:
        s.note(what, NO_ANSWER)
    finally:
        connection.close()


@scenario("Frames")
def versions_of_api_versions(s: Session) -> None:
    for version in (5, 99, 32767, -1):
        s.frame(f"version {version}", None, _sized(_head(18, version) + bytes(10)), _PATIENCE_S)


@scenario("Frames")
def headers(s: Session) -> None:
    body = encode_request(Api.METADATA, 1, {"topics": []})

    def compared(what: str, data: bytes) -> None:
        _answered(s, what, data)

    compared("no client id", _sized(_head(3, 1, client=None) + body))
    compared("an empty client id", _sized(_head(3, 1, client=b"") + body))
    compared("a client id that is no text", _sized(_head(3, 1, client=b"\xff\xfe") + body))
    compared("a client id beyond the frame", _sized(struct.pack(">hhih", 3, 1, 7, 1000) + body))
    compared("a client id of -2", _sized(struct.pack(">hhih", 3, 1, 7, -2) + body))
    compared("a negative correlation id", _sized(_head(3, 1, -5) + body))
    compared("only a header", _sized(_head(3, 1)))
    compared("half a body", _sized(_head(3, 1) + body[:2]))
    compared("more than a body", _sized(_head(3, 1) + body + b"more"))
    compared("an array that claims too much", _sized(_head(3, 1) + struct.pack(">i", 10**6)))
    compared("an array of -2", _sized(_head(3, 1) + struct.pack(">i", -2)))
    compared("a null array that must not be", _sized(_head(42, 0) + struct.pack(">i", -1)))
    compared(
        "a null string that must not be", _sized(_head(12, 0) + struct.pack(">hih", -1, 1, -1))
    )
    flexible = encode_request(Api.METADATA, 9, {"topics": []})
    compared("tags in the header", _sized(_head(3, 9) + b"\x01\x05\x02ab" + flexible))
    compared("a tag that is too long", _sized(_head(3, 9) + b"\x01\x05\x7fab" + flexible))
    compared(
        "unknown tags in the body", _sized(_head(3, 9) + b"\0" + flexible[:-1] + b"\x01\x63\x01x")
    )
    compared("tags out of order", _sized(_head(3, 9) + b"\x02\x05\x01a\x03\x01b" + flexible))
    compared("text that is no UTF-8", _sized(_head(3, 1) + struct.pack(">ih", 1, 2) + b"\xff\xfe"))


@scenario("Frames")
def halves(s: Session) -> None:
    whole = request_frame(Api.METADATA, 1, 1, "c", encode_request(Api.METADATA, 1, {"topics": []}))
    s.frame("half a frame", None, whole[:10], 0.5)
    connection = s.connect()
    found = []
    try:
        # Two at once, and a third in pieces: answers in order.
        second = request_frame(
            Api.METADATA, 1, 2, "c", encode_request(Api.METADATA, 1, {"topics": []})
        )
        third = request_frame(
            Api.METADATA, 1, 3, "c", encode_request(Api.METADATA, 1, {"topics": []})
        )
        first = connection.exchange(whole + second + third[:5], _PATIENCE_S)
        found.append(first[:4].hex())
        found.append(connection.frame(_PATIENCE_S)[:4].hex())
        found.append(connection.exchange(third[5:], _PATIENCE_S)[:4].hex())
        connection.half_close()
        connection.frame(_PATIENCE_S)
    except HungUp:
        found.append(HUNG_UP)
    except NoAnswer:
        found.append(NO_ANSWER)
    s.note("several in one write, one in two", found)


@scenario("Frames")
def after_a_bad_one(s: Session) -> None:
    """One connection's nonsense is nobody else's trouble."""
    s.frame("nonsense", None, _sized(_head(3, 9) + b"\xff" * 40), _PATIENCE_S)
    s.ask("the next request", Api.METADATA, 9, topics=[])
