"""Avro whose schemas are in the store: each message names the one it was written with."""

from __future__ import annotations

from typing import Any

from moldau.client.avro import AvroSchema, decode_avro, encode_avro, parse_avro
from moldau.schemas.header import HEADER_SIZE, pack_header, unpack_header
from moldau.schemas.store import SchemaStore


class RegisteredAvroSerializer:
    """Writes with a schema that it registers, and reads whatever schema a message names.

    The subject is the topic's name with `-value` (`-key` for keys), unless one is given. With a
    schema, messages of other versions are read as if they were of this one, by Avro's resolution
    rules; without one, they are read as they were written, and nothing can be written.
    """

    def __init__(
        self,
        store: SchemaStore,
        schema: AvroSchema | None = None,
        *,
        subject: str | None = None,
        for_key: bool = False,
        register: bool = True,
    ) -> None:
        self._store = store
        self._given = schema
        self._schema = None if schema is None else parse_avro(schema)
        self._subject = subject
        self._suffix = "-key" if for_key else "-value"
        self._register = register
        self._headers: dict[str, bytes] = {}

    def serialize(self, topic: str, value: Any) -> bytes:
        header = self._headers.get(topic) or self._header_for(topic)
        return encode_avro(self._schema, value, topic, header)

    def deserialize(self, topic: str, payload: bytes) -> Any:
        writer = self._store.by_id(unpack_header(payload)).schema
        return decode_avro(payload, HEADER_SIZE, writer, self._schema or writer)

    def _header_for(self, topic: str) -> bytes:
        if self._given is None:
            raise ValueError("a serializer needs a schema to write Avro")
        subject = self._subject or topic + self._suffix
        if self._register:
            found = self._store.register(subject, self._given)
        else:
            known = self._store.find(subject, self._given)
            if known is None:
                raise ValueError(f"the schema is not registered under {subject}")
            found = known
        self._headers[topic] = header = pack_header(found.id)
        return header
