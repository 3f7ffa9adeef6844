"""Checks that a message's lengths and counts fit its bytes, before kio's native reader sees it.

That reader reserves room for an array by the count that the message claims, and the process is
aborted when a claim is absurd. A broker must not die of one bad request, so every message is walked
first by a checker that is compiled from its schema.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from struct import calcsize
from typing import Any

from moldau.wire.primitives import INT16, INT32, MOST_TAGS, MalformedRequest, read_uvarint
from moldau.wire.schemas import FIXED_TYPES, element_type, is_array, is_optional

# As Kafka has it in every version, so what came compact can be told in an older one.
_LONGEST_STRING = 32767

# Takes a buffer, a position, and in a list of one how many elements may still follow; answers the
# position after what it checked.
Check = Callable[[memoryview, int, list[int]], int]


def check_bounds(schema: type, body: memoryview, most_elements: int) -> None:
    """MalformedRequest where `body` is not laid out as `schema` says, or lists too much."""
    try:
        end = _struct_check(schema)(body, 0, [most_elements])
    except IndexError:
        raise MalformedRequest("the message ends too early") from None
    if end > len(body):
        raise MalformedRequest("the message ends too early")


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

    def check_struct(body: memoryview, position: int, left: list[int]) -> int:
        for step in steps:
            position = step(body, position, left)
        return _check_tags(body, position, left, tagged) if flexible else position

    return check_struct


def _check_tags(body: memoryview, position: int, left: list[int], tagged: dict[int, Check]) -> int:
    count, position = read_uvarint(body, position)
    if count > MOST_TAGS:
        raise MalformedRequest(f"{count} tagged fields in one place")
    for _ in range(count):
        tag, position = read_uvarint(body, position)
        size, position = read_uvarint(body, position)
        end = position + size
        if end > len(body):
            raise MalformedRequest("a tagged field reaches beyond the message")
        if tag in tagged and tagged[tag](body, position, left) != end:
            raise MalformedRequest(f"the tagged field {tag} is not of the size it claims")
        position = end
    return position


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
        return lambda body, position, left: position + size
    if flexible:
        return _check_compact_string if kafka_type == "string" else _check_compact_bytes
    return _check_string if kafka_type == "string" else _check_bytes


def _check_compact_bytes(body: memoryview, position: int, left: list[int]) -> int:
    size, position = read_uvarint(body, position)
    return _within(body, position + max(size - 1, 0))


def _check_compact_string(body: memoryview, position: int, left: list[int]) -> int:
    size, position = read_uvarint(body, position)
    if size - 1 > _LONGEST_STRING:
        raise MalformedRequest(f"a string of {size - 1} bytes (at most {_LONGEST_STRING})")
    return _within(body, position + max(size - 1, 0))


def _check_string(body: memoryview, position: int, left: list[int]) -> int:
    _within(body, position + 2)
    return _within(body, position + 2 + max(INT16.unpack_from(body, position)[0], 0))


def _check_bytes(body: memoryview, position: int, left: list[int]) -> int:
    _within(body, position + 4)
    return _within(body, position + 4 + max(INT32.unpack_from(body, position)[0], 0))


def _within(body: memoryview, end: int) -> int:
    if end > len(body):
        raise MalformedRequest("a field reaches beyond the message")
    return end


def _array_check(check: Check, flexible: bool, nullable: bool) -> Check:
    def check_array(body: memoryview, position: int, left: list[int]) -> int:
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
            # kio would give None, where whoever reads the message counts on an array.
            raise MalformedRequest("an array is null that must not be")
        left[0] -= max(count, 0)
        if left[0] < 0:
            raise MalformedRequest(f"an array of {count} elements is too much")
        for _ in range(count):
            position = check(body, position, left)
        return _within(body, position)

    return check_array


def _nullable(check: Check) -> Check:
    # KIP-893: a nullable struct is preceded by one signed byte, negative for null.
    def check_nullable(body: memoryview, position: int, left: list[int]) -> int:
        return position + 1 if body[position] >= 0x80 else check(body, position + 1, left)

    return check_nullable
