"""Avro without a schema store: writer and reader agree on the schema beforehand.

For schemas that travel with the messages, see `moldau.schemas`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro

from moldau.client.errors import SerializationError

AvroSchema = str | Mapping[str, Any] | list[Any]


def parse_avro(schema: AvroSchema) -> Any:
    """Return a schema as fastavro wants it, from JSON text or from what that says."""
    if isinstance(schema, str):
        # A bare name (`string`) is a schema too, and is not JSON.
        named = schema.strip()
        schema = named if named.isidentifier() else json.loads(named)
    try:
        return fastavro.parse_schema(schema)  # type: ignore[arg-type]
    except Exception as problem:
        raise ValueError(f"not an Avro schema: {problem}") from None


class AvroSerializer:
    """Values of one schema, in Avro's binary encoding.

    Reads what was written with the same schema, or with `writer_schema` where that is another one:
    then Avro's resolution rules apply.
    """

    def __init__(self, schema: AvroSchema, writer_schema: AvroSchema | None = None) -> None:
        self._schema = parse_avro(schema)
        self._writer = self._schema if writer_schema is None else parse_avro(writer_schema)

    def serialize(self, topic: str, value: Any) -> bytes:
        return encode_avro(self._schema, value, topic)

    def deserialize(self, topic: str, payload: bytes) -> Any:
        return decode_avro(payload, 0, self._writer, self._schema)


def encode_avro(schema: Any, value: Any, topic: str, prefix: bytes = b"") -> bytes:
    out = io.BytesIO(prefix)
    out.seek(len(prefix))
    try:
        fastavro.schemaless_writer(out, schema, value)
    except Exception as problem:
        raise SerializationError(
            f"a value for {topic} does not match its schema: {problem}"
        ) from None
    return out.getvalue()


def decode_avro(payload: bytes, start: int, writer: Any, reader: Any) -> Any:
    """Return the value at `start`, written with one schema and seen through the other; raises
    ValueError.

    What is left over is an error: it means that the schema is not the writer's.
    """
    stream = io.BytesIO(payload)
    stream.seek(start)
    try:
        value = fastavro.schemaless_reader(stream, writer, reader)
    except Exception as problem:
        raise ValueError(
            f"not Avro of this schema: {str(problem) or type(problem).__name__}"
        ) from problem
    left = len(payload) - stream.tell()
    if left:
        raise ValueError(f"not Avro of this schema: {left} bytes are left over")
    return value
