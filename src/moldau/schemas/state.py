"""The state of a schema store: the topic's records, applied in order.

No I/O here. Every reader applies the same records in the same order and so comes to the same
state; that is what decides between two writers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from moldau.client.avro import parse_avro
from moldau.schemas.modes import Mode
from moldau.schemas.records import ConfigKey, ConfigValue, Record, SchemaKey, SchemaValue

DEFAULT_MODE = Mode.BACKWARD


@dataclass(frozen=True)
class RegisteredSchema:
    """A version of a subject. The same schema has the same id under every subject."""

    subject: str
    version: int
    id: int
    text: str

    @cached_property
    def schema(self) -> Any:
        """As fastavro takes it."""
        return parse_avro(json.loads(self.text))


class SchemaState:
    """Subjects with their versions, ids and modes."""

    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, RegisteredSchema]] = {}
        self._texts: dict[int, RegisteredSchema] = {}
        self._ids: dict[str, int] = {}
        self._modes: dict[str | None, Mode] = {}
        self._nonces: dict[tuple[str, int], str] = {}

    def apply(self, record: Record) -> None:
        key, value = record
        if isinstance(key, ConfigKey):
            if isinstance(value, ConfigValue):
                self._modes[key.subject] = value.mode
            else:
                self._modes.pop(key.subject, None)
        elif isinstance(value, SchemaValue):
            self._apply_schema(key, value)

    def _apply_schema(self, key: SchemaKey, value: SchemaValue) -> None:
        """The first to claim a version and an id has them."""
        versions = self._subjects.get(value.subject, {})
        holder = self._texts.get(value.id)
        if value.version in versions or (holder is not None and holder.text != value.schema):
            return
        if self._ids.get(value.schema, value.id) != value.id:
            return
        found = RegisteredSchema(value.subject, value.version, value.id, value.schema)
        self._subjects.setdefault(value.subject, {})[value.version] = found
        self._texts.setdefault(value.id, found)
        self._ids[value.schema] = value.id
        self._nonces[value.subject, value.version] = key.nonce

    def won(self, key: SchemaKey) -> bool:
        """Return whether the record of this key is the one that counts."""
        return self._nonces.get((key.subject, key.version)) == key.nonce

    def subjects(self) -> list[str]:
        return sorted(self._subjects)

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """Oldest first; none for a subject that is not known."""
        versions = self._subjects.get(subject, {})
        return [versions[version] for version in sorted(versions)]

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        return self._texts.get(schema_id)

    def find(self, subject: str, text: str) -> RegisteredSchema | None:
        for found in self.versions(subject):
            if found.text == text:
                return found
        return None

    def next_version(self, subject: str) -> int:
        return max(self._subjects.get(subject, {0: None})) + 1

    def id_for(self, text: str) -> int:
        """Return the id that a schema has, or the next free one."""
        known = self._ids.get(text)
        return known if known is not None else max(self._texts, default=0) + 1

    def mode(self, subject: str | None = None) -> Mode:
        return self._modes.get(subject) or self._modes.get(None) or DEFAULT_MODE
