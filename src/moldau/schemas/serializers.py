"""Avro whose schemas are registered: each message names the one it was written with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moldau.client.avro import AvroSchema, decode_avro, encode_avro, parse_avro
from moldau.schemas.catalog import SchemaCatalog
from moldau.schemas.header import (
    KEY_HEADER,
    VALUE_HEADER,
    name_in,
    pack_guid,
    pack_header,
    read_name,
)

Headers = Iterable[tuple[str, bytes | None]]


class RegisteredAvroSerializer:
    """Writes with a schema that it registers, and reads whatever schema a message names.

    The subject is the topic's name with `-value` (`-key` for keys), unless one is given. With a
    schema, messages of other versions are read as if they were of this one, by Avro's resolution
    rules; without one, they are read as they were written, and nothing can be written.

    A message names its schema by an id in front of the value, or, `in_headers`, by the schema's
    guid in a header. Both are read.
    """

    takes_headers = True

    def __init__(
        self,
        store: SchemaCatalog,
        schema: AvroSchema | None = None,
        *,
        subject: str | None = None,
        for_key: bool = False,
        register: bool = True,
        in_headers: bool = False,
    ) -> None:
        self._store = store
        self._given = schema
        self._schema = None if schema is None else parse_avro(schema)
        self._subject = subject
        self._suffix = "-key" if for_key else "-value"
        self._name = KEY_HEADER if for_key else VALUE_HEADER
        self._in_headers = in_headers
        # What a message of a topic needs beside its value.
        self.headers = self._more_headers if in_headers else None
        self._register = register
        self._headers: dict[str, bytes] = {}

    def serialize(self, topic: str, value: Any) -> bytes:
        header = self._headers.get(topic) or self._header_for(topic)
        return encode_avro(self._schema, value, topic, b"" if self._in_headers else header)

    def deserialize(self, topic: str, payload: bytes, headers: Headers | None = None) -> Any:
        name = read_name(payload, name_in(headers, self._name))
        writer = self._store.named(name.schema).schema
        return decode_avro(payload, name.start, writer, self._schema or writer)

    def _more_headers(self, topic: str) -> list[tuple[str, bytes]]:
        return [(self._name, self._headers.get(topic) or self._header_for(topic))]

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
        if not self._in_headers:
            header = pack_header(found.id)
        elif found.guid:
            header = pack_guid(found.guid)
        else:
            raise ValueError(f"the registry gives no guid for {subject}; use in_headers=False")
        self._headers[topic] = header
        return header
