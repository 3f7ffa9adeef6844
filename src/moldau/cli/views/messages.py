"""Messages as text: the format placeholders of `consume` and the JSON lines of both directions.

A JSON line of `consume --json` fed to `produce --json` makes the same message again, whatever its
bytes: what is not UTF-8 travels as base64 (`key_base64`, `value_base64`, and `{"base64": ...}` for
a header's value).
"""

from __future__ import annotations

import base64
import binascii
import json
import string
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from confluent_kafka import Message

HeaderList = list[tuple[str, str | bytes | None]]

OWN_FIELDS = frozenset(
    ("key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp")
)
FOREIGN_FIELDS = frozenset(("topic", "offset"))
ESCAPES = {"\\n": "\n", "\\t": "\t", "\\0": "\0", "\\\\": "\\"}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to send; None for partition or timestamp leaves it to the client."""

    key: bytes | None
    value: bytes | None
    headers: HeaderList
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Decoded:
    """The decoded bytes of a value, as JSON represents them."""

    value: Any

    def text(self) -> str:
        return json.dumps(self.value, ensure_ascii=False)


# Decodes a message's value; None for one that is shown as it is.
Decode = Callable[["Message"], Decoded | None]
# Parses a line without its line end into a message; None for an empty one.
Parse = Callable[[bytes], Outgoing | None]


class BadLine(ValueError):
    """A line of input that is not a message."""


def parse_json_line(line: bytes, encode: Callable[[Any], bytes] | None = None) -> Outgoing | None:
    """Return the message of one JSON object, None of an empty line; BadLine says what is wrong with
    it.

    With `encode`, that is what makes bytes of the value.
    """
    if not line:
        return None
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise BadLine(f"not JSON: {problem}") from None
    if not isinstance(fields, dict):
        raise BadLine("not a JSON object")
    strange = sorted(fields.keys() - OWN_FIELDS - FOREIGN_FIELDS)
    if strange:
        raise BadLine(
            f"unknown field {strange[0]!r}; the known fields are {', '.join(sorted(OWN_FIELDS))}"
        )
    value = fields.get("value")
    encoded = encode is not None and value is not None and fields.get("value_base64") is None
    return Outgoing(
        key=_content(fields, "key"),
        value=encode(value) if encoded and encode else _content(fields, "value"),
        headers=_headers(fields.get("headers") or []),
        partition=_number(fields, "partition", 2**31),
        timestamp_ms=_number(fields, "timestamp", 2**63),
    )


def _content(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        return _from_base64(encoded, f"{name}_base64")
    content = fields.get(name)
    if content is None:
        return None
    return _text(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))


def _text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadLine("a lone surrogate is not text") from None


def _from_base64(encoded: object, name: str) -> bytes:
    try:
        return base64.b64decode(str(encoded), validate=True)
    except (binascii.Error, ValueError):
        raise BadLine(f"{name} is not base64") from None


def _number(fields: dict[str, Any], name: str, limit: int) -> int | None:
    number = fields.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < limit:
        raise BadLine(f"{name} must be a whole number, 0 or more")
    return number


def _headers(given: object) -> HeaderList:
    pairs: Iterable[Any]
    if isinstance(given, dict):
        pairs = given.items()
    elif isinstance(given, list):
        pairs = given
    else:
        raise BadLine("headers must be an object or a list of [name, value] pairs")
    found: HeaderList = []
    for pair in pairs:
        if not isinstance(pair, Sequence) or len(pair) != 2 or not isinstance(pair[0], str):
            raise BadLine("a header must be a [name, value] pair")
        name, value = pair
        if isinstance(value, dict) and value.keys() == {"base64"}:
            found.append((name, _from_base64(value["base64"], f"header {name}")))
        elif value is None or isinstance(value, str):
            found.append((name, None if value is None else _text(value)))
        else:
            raise BadLine(f"header {name}: the value must be a string or null")
        _text(name)
    return found


def message_as_json(message: Message, decode: Decode | None = None) -> bytes:
    """Return the JSON line of a consumed message, newline included."""
    fields: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
    }
    for name, content in (("key", message.key()), ("value", message.value())):
        text, encoded = _readable(content)
        fields[name if encoded is None else f"{name}_base64"] = encoded or text
    decoded = None if decode is None else decode(message)
    if decoded is not None:
        fields.pop("value_base64", None)
        fields["value"] = decoded.value
    fields["headers"] = [[name, _header_value(value)] for name, value in _header_list(message)]
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _readable(content: bytes | str | None) -> tuple[str | None, str | None]:
    if content is None or isinstance(content, str):
        return content, None
    try:
        return content.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(content).decode()


def _header_value(value: bytes | str | None) -> str | dict[str, str] | None:
    text, encoded = _readable(value)
    return text if encoded is None else {"base64": encoded}


def _header_list(message: Message) -> HeaderList:
    return cast(HeaderList, message.headers() or [])


def _bytes(content: bytes | str | None) -> bytes:
    if content is None:
        return b""
    return content.encode() if isinstance(content, str) else content


def _time(message: Message) -> bytes:
    moment = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()


def _header_text(message: Message) -> bytes:
    return b",".join(name.encode() + b"=" + _bytes(value) for name, value in _header_list(message))


PLACEHOLDERS: dict[str, Callable[[Message], bytes]] = {
    "topic": lambda message: _bytes(message.topic()),
    "partition": lambda message: b"%d" % (message.partition() or 0),
    "offset": lambda message: b"%d" % (message.offset() or 0),
    "timestamp": lambda message: b"%d" % message.timestamp()[1],
    "time": _time,
    "key": lambda message: _bytes(message.key()),
    "value": lambda message: _bytes(message.value()),
    "headers": _header_text,
}


def compile_format(template: str, decode: Decode | None = None) -> Callable[[Message], bytes]:
    """Return the function that turns a message into one line of output, newline included.

    Placeholders are `{key}` and so on, `{{` and `}}` stand for braces, and `\\n`, `\\t`, `\\0` for
    those characters. A null key or value is empty. ValueError names a placeholder that is not one.
    """
    parts: list[bytes | Callable[[Message], bytes]] = []
    sources = PLACEHOLDERS
    if decode is not None:
        sources = sources | {"value": lambda message: _decoded_value(message, decode)}
    for literal, name, spec, conversion in string.Formatter().parse(template):
        if literal:
            parts.append(_unescape(literal).encode())
        if name is None:
            continue
        if name not in PLACEHOLDERS or spec or conversion:
            known = " ".join(f"{{{known}}}" for known in PLACEHOLDERS)
            raise ValueError(f"{{{name}}} is not a placeholder; use {known}")
        parts.append(sources[name])
    parts.append(b"\n")
    if parts == [PLACEHOLDERS["value"], b"\n"]:
        # The default, at three times the speed.
        return lambda message: _bytes(message.value()) + b"\n"

    def render(message: Message) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(message) for part in parts)

    return render


def _decoded_value(message: Message, decode: Decode) -> bytes:
    decoded = decode(message)
    return _bytes(message.value()) if decoded is None else decoded.text().encode()


def _unescape(literal: str) -> str:
    pieces, position = [], 0
    while position < len(literal):
        pair = literal[position : position + 2]
        pieces.append(ESCAPES.get(pair, literal[position]))
        position += 2 if pair in ESCAPES else 1
    return "".join(pieces)
