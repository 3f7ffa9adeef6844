"""Bounds: checks that a message's lengths and counts fit its bytes, before kio's native reader sees
it.

That reader reserves room for an array by the count that the message claims, and the process is
aborted when a claim is absurd. A broker must not die of one bad request, so every message is walked
first by a checker that is compiled from its schema.

The reader also refuses tagged fields that its schema does not know, which a newer peer may send in
a version that both know (KIP-482). The walk finds them, and the message is rewritten without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from struct import calcsize
from typing import Any

from moldau.wire.primitives import (
    INT16,
    INT32,
    MOST_TAGS,
    MalformedRequest,
    read_uvarint,
    uvarint,
)
from moldau.wire.schemas import FIXED_TYPES, element_type, is_array, is_optional

# Kafka's limit in every version, so that a compact string can be written in an older one.
_LONGEST_STRING = 32767


class Walk:
    """A walk's budget of elements, and the replacements to make: start, end, new bytes."""

    __slots__ = ("edits", "left")

    def __init__(self, left: int) -> None:
        self.left = left
        self.edits: list[tuple[int, int, bytes]] = []


# Takes a buffer, a position and the walk; answers the position after what it checked.
Check = Callable[[memoryview, int, Walk], int]


def check_bounds(schema: type, body: memoryview, most_elements: int) -> memoryview:
    """Return the message without the tagged fields that `schema` does not know.

    MalformedRequest where `body` is not laid out as `schema` says, or lists too much.
    """
    walk = Walk(most_elements)
    try:
        end = _struct_check(schema)(body, 0, walk)
    except IndexError:
        raise MalformedRequest("the message ends too early") from None
    if end > len(body):
        raise MalformedRequest("the message ends too early")
    return memoryview(_edited(body, 0, len(body), walk.edits)) if walk.edits else body


def prepare_check(schema: type) -> None:
    """Compile the checker of a schema ahead of its first message."""
    _struct_check(schema)


@cache
def _struct_check(schema: type) -> Check:
    flexible: bool = schema.__flexible__  # type: ignore[attr-defined]
    steps: list[Check] = []
    tagged: dict[int, Check] = {}
    for field in fields(schema):
        check = _field_check(field, flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = check
        else:
            steps.append(check)

    def check_struct(body: memoryview, position: int, walk: Walk) -> int:
        for step in steps:
            position = step(body, position, walk)
        return _check_tags(body, position, walk, tagged) if flexible else position

    return check_struct


def _check_tags(body: memoryview, position: int, walk: Walk, tagged: dict[int, Check]) -> int:
    start = position
    count, position = read_uvarint(body, position)
    if count > MOST_TAGS:
        raise MalformedRequest(f"{count} tagged fields in one place")
    kept: list[bytes] = []
    edits_before = len(walk.edits)
    for _ in range(count):
        tag, position = read_uvarint(body, position)
        size, position = read_uvarint(body, position)
        end = position + size
        if end > len(body):
            raise MalformedRequest("a tagged field extends beyond the message")
        if tag in tagged:
            first_edit = len(walk.edits)
            if tagged[tag](body, position, walk) != end:
                raise MalformedRequest(
                    f"the tagged field {tag} does not have the size that it claims"
                )
            value = _edited(body, position, end, walk.edits[first_edit:])
            kept.append(uvarint(tag) + uvarint(len(value)) + value)
        position = end
    if len(kept) < count or len(walk.edits) > edits_before:
        # One edit for the whole section: those inside it are in `kept` already.
        del walk.edits[edits_before:]
        walk.edits.append((start, position, uvarint(len(kept)) + b"".join(kept)))
    return position


def _edited(body: memoryview, start: int, end: int, edits: list[tuple[int, int, bytes]]) -> bytes:
    """`body` from `start` to `end` with the replacements made."""
    out = bytearray()
    for first, last, replacement in edits:
        out += body[start:first]
        out += replacement
        start = last
    out += body[start:end]
    return bytes(out)


def _field_check(field: Any, flexible: bool) -> Check:
    inner = element_type(field.type)
    if is_dataclass(inner):
        check = _struct_check(inner)  # type: ignore[arg-type]
        if not is_array(field.type) and is_optional(field.type) and "tag" not in field.metadata:
            return _nullable(check)
    else:
        check = _primitive_check(field.metadata["kafka_type"], flexible)
    if is_array(field.type):
        return _array_check(check, flexible, is_optional(field.type))
    return check


def _primitive_check(kafka_type: str, flexible: bool) -> Check:
    if kafka_type in FIXED_TYPES or kafka_type == "uuid":
        size = calcsize(">" + FIXED_TYPES.get(kafka_type, "16s"))
        return lambda body, position, walk: position + size
    if flexible:
        return _check_compact_string if kafka_type == "string" else _check_compact_bytes
    return _check_string if kafka_type == "string" else _check_bytes


def _check_compact_bytes(body: memoryview, position: int, walk: Walk) -> int:
    size, position = read_uvarint(body, position)
    return _within(body, position + max(size - 1, 0))


def _check_compact_string(body: memoryview, position: int, walk: Walk) -> int:
    size, position = read_uvarint(body, position)
    if size - 1 > _LONGEST_STRING:
        raise MalformedRequest(f"a string of {size - 1} bytes (at most {_LONGEST_STRING})")
    return _within(body, position + max(size - 1, 0))


def _check_string(body: memoryview, position: int, walk: Walk) -> int:
    _within(body, position + 2)
    return _within(body, position + 2 + max(INT16.unpack_from(body, position)[0], 0))


def _check_bytes(body: memoryview, position: int, walk: Walk) -> int:
    _within(body, position + 4)
    return _within(body, position + 4 + max(INT32.unpack_from(body, position)[0], 0))


def _within(body: memoryview, end: int) -> int:
    if end > len(body):
        raise MalformedRequest("a field extends beyond the message")
    return end


def _array_check(check: Check, flexible: bool, nullable: bool) -> Check:
    def check_array(body: memoryview, position: int, walk: Walk) -> int:
        if flexible:
            count, position = read_uvarint(body, position)
            count -= 1
        else:
            _within(body, position + 4)
            (count,) = INT32.unpack_from(body, position)
            position += 4
        if count > len(body) - position:
            raise MalformedRequest(f"an array claims {count} elements")
        if count < 0 and not nullable:
            # kio would return None where the code expects an array.
            raise MalformedRequest("an array that must not be null is null")
        walk.left -= max(count, 0)
        if walk.left < 0:
            raise MalformedRequest(f"an array of {count} elements is too large")
        for _ in range(count):
            position = check(body, position, walk)
        return _within(body, position)

    return check_array


def _nullable(check: Check) -> Check:
    # KIP-893: a nullable struct is preceded by one signed byte, negative for null.
    def check_nullable(body: memoryview, position: int, walk: Walk) -> int:
        return position + 1 if body[position] >= 0x80 else check(body, position + 1, walk)

    return check_nullable
