"""Values that are not Avro: checked one by one, by the libraries of their formats."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NoReturn

from moldau.schemas.door.patterns import UnboundedPattern, bound_patterns
from moldau.schemas.json_schema.documents import Documents
from moldau.schemas.schema import Dependency, Schema, SchemaType

# Says what is wrong with a payload behind its header; None if nothing is.
Check = Callable[[bytes], str | None]

# The most CPU time for one value. A schema with alternatives that lead back to it may take twice as
# long for each level of a value.
_MOST_CPU_S = 1.0
# The most for all values of a batch: less than the process has for it, which would be sent again.
_MOST_OF_BATCH_S = 20.0


class TakesTooLong(Exception):
    """A value that has used up its time."""


class _Clock:
    """The CPU time of values. Only for a process of its own, in its main thread."""

    def __init__(self) -> None:
        self._is_running = False
        # What the values of this batch have used up.
        self.spent_s = 0.0
        signal.signal(signal.SIGVTALRM, self._ring)

    def _ring(self, *_: object) -> None:
        if self._is_running:
            raise TakesTooLong

    def bounded(self, check: Check, payload: bytes) -> str | None:
        left_s = _MOST_OF_BATCH_S - self.spent_s
        if left_s <= 0:
            return f"the values before it took more than {_MOST_OF_BATCH_S:g} s of CPU time"
        began_s = time.thread_time()
        self._is_running = True
        # It rings again and again: what is raised while the garbage collector calls is lost.
        signal.setitimer(signal.ITIMER_VIRTUAL, _MOST_CPU_S, _MOST_CPU_S / 10)
        try:
            try:
                return check(payload)
            finally:
                self._is_running = False
        except TakesTooLong:
            return f"checking it takes more than {_MOST_CPU_S:g} s of CPU time"
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            self.spent_s += time.thread_time() - began_s


# Made when the first value needs it.
_clock = lru_cache(maxsize=1)(_Clock)


def begin_batch() -> None:
    """Give the values that come next all of the time again."""
    if _clock.cache_info().currsize:
        _clock().spent_s = 0.0


def check_of(schema: Schema, dependencies: Sequence[Dependency]) -> Check:
    if schema.schema_type is SchemaType.JSON:
        return partial(_clock().bounded, _json_check(schema, dependencies))
    return _protobuf_check(schema, dependencies)


def _json_check(schema: Schema, dependencies: Sequence[Dependency]) -> Check:
    import jsonschema
    import referencing

    root = Documents(schema.schema, dependencies).root
    draft = jsonschema.validators.validator_for(root, default=jsonschema.Draft7Validator)
    resources = [
        (
            each.name,
            referencing.Resource.from_contents(
                json.loads(each.schema), default_specification=referencing.jsonschema.DRAFT7
            ),
        )
        for each in dependencies
    ]
    registry = referencing.Registry().with_resources(resources)
    bound_patterns()
    validator = draft(root, registry=registry)

    def check(payload: bytes) -> str | None:
        try:
            value = json.loads(payload, parse_constant=_refuse)
        except (ValueError, RecursionError) as problem:
            return f"not JSON: {problem}"
        try:
            first = next(iter(validator.iter_errors(value)), None)
        except UnboundedPattern as problem:
            return str(problem)
        except RecursionError:
            return "its schema is nested too deeply"
        if first is None:
            return None
        place = "/".join(map(str, first.absolute_path))
        return f"not a value of the schema: /{place}: {first.message}"[:500]

    return check


def _refuse(constant: str) -> NoReturn:
    """NaN and the like, which Python's parser takes, are no JSON."""
    raise ValueError(f"{constant} is not a JSON value")


def _protobuf_check(schema: Schema, dependencies: Sequence[Dependency]) -> Check:
    from google.protobuf import descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    from moldau.schemas.protobuf.schema import ProtobufSchema

    parsed = ProtobufSchema(schema.schema, dependencies)
    pool = descriptor_pool.DescriptorPool()
    for file in [*parsed.imports.values(), parsed.file]:
        pool.AddSerializedFile(file.SerializeToString())
    by_name = pool.FindFileByName(parsed.file.name).message_types_by_name
    top = [by_name[message.name] for message in parsed.file.message_type]

    def check(payload: bytes) -> str | None:
        indexes, at = _indexes(payload)
        if indexes is None:
            return "the message's index is incomplete"
        nested: Any = top
        message = None
        for index in indexes:
            if not 0 <= index < len(nested):
                return f"the schema has no message with the index {indexes}"
            message = nested[index]
            nested = message.nested_types
        try:
            found = message_factory.GetMessageClass(message).FromString(payload[at:])
        except (DecodeError, UnicodeDecodeError, ValueError) as problem:
            return f"not a message of the schema: {problem}"
        if found.IsInitialized():
            return None
        # Python reads it all the same, and Java does not.
        missing = ", ".join(found.FindInitializationErrors())
        return f"not a message of the schema: it lacks {missing}"[:500]

    return check


def _indexes(payload: bytes) -> tuple[list[int] | None, int]:
    """Return the path to a message, zigzag numbers behind their count; 0 is short for [0]."""
    count, at = _varint(payload, 0)
    if count is None or count < 0 or count > len(payload):
        return None, 0
    if count == 0:
        return [0], at
    found = []
    for _ in range(count):
        index, at = _varint(payload, at)
        if index is None:
            return None, 0
        found.append(index)
    return found, at


def _varint(payload: bytes, at: int) -> tuple[int | None, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(payload):
            return None, at
        byte = payload[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    return None, at
