"""Bad input to the schema registry: what a client may send that could cost everybody else time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

# More than the 4 MiB that a request may have, and a little less.
_TOO_LARGE, _LARGE = 9 << 20, 4_000_000


class BadRequest(NamedTuple):
    """A request, and how it is answered."""

    name: str
    method: str
    path: str
    body: bytes
    status: int


def bad_requests() -> Iterator[BadRequest]:
    """Yield one of each kind. Those that are only unusual are taken, and may be sent again."""
    yield _registered("a body that is too large", "x" * _TOO_LARGE, "AVRO", 413)
    yield _registered("a description of four megabytes", _described(_LARGE), "JSON", 422)
    for depth in (101, 50_000):
        deep = '{"type":"array","items":' * depth + '"int"' + "}" * depth
        yield _registered(f"Avro, {depth:,} levels deep", deep, "AVRO", 422)
    yield _registered("JSON that only opens", "[" * 1_000_000, "JSON", 422)
    nested = "message A {" * 1_000 + "}" * 1_000
    yield _registered("Protobuf, 1,000 levels deep", nested, "PROTOBUF", 422)
    yield _registered("a reference to itself", '{"$ref": "#"}', "JSON", 422)
    missing = [{"name": "next", "subject": "bad-nobody", "version": 1}] * 100
    yield _registered("references to nothing", "{}", "JSON", 422, references=missing)
    for number in range(2):
        # The second is compared with the first: each branch with every other.
        yield _registered("hundreds of branches", _branches(number), "AVRO", 200, "branches")
        yield _registered("patterns that explode", _exploding(number), "JSON", 200, "patterns")
        yield _registered("hundreds of properties", _properties(number), "JSON", 200, "wide")
    yield _registered(
        "a hundred thousand little things", '"int"', "AVRO", 413, metadata={"a": [{}] * 100_000}
    )
    for name in ("with/slashes/and more", "žluťoučký kůň", "🐎" * 50, "%2F..%2F.."):
        yield _registered(f"a subject called {name[:20]}", '"int"', "AVRO", 200, name)
    yield _registered("a name of two thousand letters", '"int"', "AVRO", 422, "x" * 2_000)
    yield BadRequest("half a body", "POST", "/subjects/bad/versions", b'{"schema": "', 400)


def _registered(
    name: str, schema: str, kind: str, status: int, subject: str = "subject", **more: object
) -> BadRequest:
    body = json.dumps({"schema": schema, "schemaType": kind, **more}).encode()
    path = f"/subjects/{quote(f'bad-{subject}', safe='')}/versions"
    return BadRequest(name, "POST", path, body, status)


def _described(size: int) -> str:
    return json.dumps({"description": "x" * size})


def _branches(number: int) -> str:
    enums = ({"type": "enum", "name": f"E{n}", "symbols": ["A", "B"]} for n in range(150))
    return json.dumps(["null", *enums, *["int", "long"][:number]])


def _exploding(number: int) -> str:
    pattern = "(a+)+" * 50 + "$"
    return json.dumps({"type": "string", "pattern": pattern, "title": str(number)})


def _properties(number: int) -> str:
    names = {f"p{n}": {"type": "string", "pattern": f"(x+x+)+{n}$"} for n in range(500)}
    return json.dumps({"type": "object", "properties": names, "title": str(number)})
