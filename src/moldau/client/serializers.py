"""Values to bytes and back: bytes, text, JSON.

A serializer has `serialize(topic, value)`, a deserializer `deserialize(topic, payload)`; a plain
function of the value (`str.encode`) will do as well. None is never handed to one: a message without
a value, or without a key, is a fact of its own (in a compacted topic it deletes).

A serializer with a function `headers(topic)` adds what that returns to the headers of its messages.
A deserializer with `takes_headers = True` is called with them as a third argument.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from moldau.client.errors import SerializationError

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


class Serializer(Protocol[In]):
    def serialize(self, topic: str, value: In) -> bytes | str: ...


class Deserializer(Protocol[Out]):
    def deserialize(self, topic: str, payload: bytes) -> Out: ...


Serialize = Callable[[str, Any], "bytes | str"]
Deserialize = Callable[..., Any]


class BytesSerializer:
    """Bytes as they are, and nothing else."""

    def serialize(self, topic: str, value: bytes | bytearray | memoryview) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise SerializationError(f"{topic} takes bytes, not {type(value).__name__}")
        return bytes(value)

    def deserialize(self, topic: str, payload: bytes) -> bytes:
        return payload


class StringSerializer:
    """Text, in UTF-8 unless told otherwise."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, value: str) -> bytes:
        if not isinstance(value, str):
            raise SerializationError(f"{topic} takes text, not {type(value).__name__}")
        try:
            return value.encode(self.encoding)
        except UnicodeError as problem:
            raise SerializationError(f"text for {topic}: {problem}") from None

    def deserialize(self, topic: str, payload: bytes) -> str:
        return payload.decode(self.encoding)


class JsonSerializer:
    """JSON, optionally checked against a JSON schema on the way in and on the way out.

    A schema needs the package jsonschema: `pip install moldau[jsonschema]`.
    """

    def __init__(self, schema: Mapping[str, Any] | None = None) -> None:
        self._encoder = msgspec.json.Encoder()
        self._problem = None if schema is None else _schema_check(schema)

    def serialize(self, topic: str, value: Any) -> bytes:
        try:
            encoded = self._encoder.encode(value)
        except (TypeError, ValueError, RecursionError) as problem:
            raise SerializationError(f"a value for {topic} is not JSON: {problem}") from None
        if self._problem is not None:
            # Checked as a reader will see it: a tuple is an array there, a dataclass an object.
            problem_found = self._problem(json.loads(encoded))
            if problem_found is not None:
                raise SerializationError(
                    f"a value for {topic} does not match its schema: {problem_found}"
                )
        return encoded

    def deserialize(self, topic: str, payload: bytes) -> Any:
        value = json.loads(payload)
        if self._problem is not None:
            problem = self._problem(value)
            if problem is not None:
                raise ValueError(f"it does not match the schema: {problem}")
        return value


def _schema_check(schema: Mapping[str, Any]) -> Callable[[Any], str | None]:
    try:
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for
    except ImportError:
        raise ImportError(
            "to check values against a JSON schema, install the package jsonschema: pip "
            "install moldau[jsonschema]"
        ) from None
    kind = validator_for(schema)
    try:
        kind.check_schema(dict(schema))
    except SchemaError as problem:
        raise ValueError(f"not a JSON schema: {problem.message}") from None
    validator = kind(dict(schema))

    def problem_of(value: Any) -> str | None:
        for problem in validator.iter_errors(value):
            return f"{problem.json_path}: {problem.message}"
        return None

    return problem_of


def serialize_with(serializer: Any) -> Serialize | None:
    """Return the function behind a serializer, whether it is an object, a plain
    function or None."""
    if serializer is None:
        return None
    method = getattr(serializer, "serialize", None)
    if method is not None:
        return method  # type: ignore[no-any-return]
    if not callable(serializer):
        raise TypeError(f"{serializer!r} is not a serializer: it has no `serialize(topic, value)`")
    return lambda topic, value: serializer(value)


def deserialize_with(deserializer: Any) -> Deserialize | None:
    """Return the function behind a deserializer, be it an object, a plain function or None."""
    if deserializer is None:
        return None
    method = getattr(deserializer, "deserialize", None)
    if method is not None:
        return method  # type: ignore[no-any-return]
    if not callable(deserializer):
        raise TypeError(
            f"{deserializer!r} is not a deserializer: it has no `deserialize(topic, payload)`"
        )
    return lambda topic, payload: deserializer(payload)
