"""The schema store."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable
from typing import Any

import msgspec

from moldau.client.avro import AvroSchema, parse_avro
from moldau.schemas.avro.canonical import canonical
from moldau.schemas.catalog import SchemaCatalog
from moldau.schemas.errors import IncompatibleSchema, SchemaError, SchemaNotFound
from moldau.schemas.levels import Level
from moldau.schemas.registered import RegisteredSchema
from moldau.schemas.registry.names import DEFAULT_CONTEXT, context_of
from moldau.schemas.registry.records import (
    Config,
    ConfigKey,
    SchemaKey,
    SchemaValue,
    schema_text,
)
from moldau.schemas.registry.state import MissingReference, RegistryState, Version
from moldau.schemas.schema import Reference, Schema, SchemaType
from moldau.schemas.topic import SchemaTopic

TOPIC = "_schemas"
# Each lost attempt means that another writer has registered something.
TRIES = 100


class SchemaStore(SchemaCatalog):
    """Schemas that evolve: subjects, their versions, and ids that never change.

    Kept in a compacted topic, `_schemas`; there is no server beside the brokers. A writer appends
    its record and reads back to its own offset: whoever came first has the version and the id, and
    the others try again. It registers Avro, and sees what a registry over HTTP keeps in the same
    topic. Any thread may use it; address and settings are given as for a `Producer`.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        topic: str = TOPIC,
        replication_factor: int = -1,
        **settings: Any,
    ) -> None:
        self._lock = threading.Lock()
        self._state = RegistryState()
        self._by_id: dict[int, RegisteredSchema] = {}
        self._topic = SchemaTopic(bootstrap, topic, settings, replication_factor)
        self.refresh()

    def register(
        self,
        subject: str,
        schema: AvroSchema,
        kind: SchemaType = SchemaType.AVRO,
        references: Iterable[Reference] = (),
    ) -> RegisteredSchema:
        _require_avro(kind, references)
        text = _text(schema)
        with self._lock:
            self._refresh()
            for _ in range(TRIES):
                found = self._find(subject, text)
                if found is not None:
                    return found
                reason = self._problem(subject, text)
                if reason is not None:
                    raise IncompatibleSchema(subject, self._state.level(subject), reason)
                self._try_to_register(subject, text)
        raise SchemaError(
            f"could not register a schema under {subject}: {TRIES} attempts "
            "lost a race with other writers"
        )

    def _try_to_register(self, subject: str, text: str) -> None:
        state, context = self._state, context_of(subject)
        version = state.next_version(subject)
        schema_id = state.id_of(context, Schema(text)) or state.next_id(context)
        key = SchemaKey(subject, version, uuid.uuid4().hex)
        offset = self._topic.append(key, SchemaValue(subject, version, schema_id, text))
        self._refresh(offset + 1)
        if not self._state.won(key):
            # Readers ignore it anyway; without it, compaction has less to keep.
            self._topic.append(key, None)

    def problem(
        self,
        subject: str,
        schema: AvroSchema,
        kind: SchemaType = SchemaType.AVRO,
        references: Iterable[Reference] = (),
    ) -> str | None:
        _require_avro(kind, references)
        with self._lock:
            self._refresh()
            return self._problem(subject, _text(schema))

    def find(
        self,
        subject: str,
        schema: AvroSchema,
        kind: SchemaType = SchemaType.AVRO,
        references: Iterable[Reference] = (),
    ) -> RegisteredSchema | None:
        _require_avro(kind, references)
        text = _text(schema)
        with self._lock:
            found = self._find(subject, text)
            if found is None:
                self._refresh()
                found = self._find(subject, text)
            return found

    def by_id(self, schema_id: int) -> RegisteredSchema:
        found = self._by_id.get(schema_id)
        if found is not None:
            return found
        with self._lock:
            holders = self._state.holders(DEFAULT_CONTEXT, schema_id)
            if not holders:
                self._refresh()
                holders = self._state.holders(DEFAULT_CONTEXT, schema_id)
            if not holders:
                raise SchemaNotFound(f"no schema has the id {schema_id}")
            found = self._by_id[schema_id] = self._registered(holders[0])
        return found

    def by_guid(self, guid: str) -> RegisteredSchema:
        with self._lock:
            found = self._id_of(guid)
            if found is None:
                self._refresh()
                found = self._id_of(guid)
        if found is None:
            raise SchemaNotFound(f"no schema has the guid {guid}")
        return self.by_id(found)

    def _id_of(self, guid: str) -> int | None:
        found = self._state.by_guid(guid.lower())
        return next((id for context, id in found if context == DEFAULT_CONTEXT), None)

    def version(self, subject: str, version: int | None = None) -> RegisteredSchema:
        versions = self.versions(subject)
        for found in versions:
            if found.version == (version or versions[-1].version):
                return found
        raise SchemaNotFound(f"{subject} has no version {version or 1}")

    def versions(self, subject: str) -> list[RegisteredSchema]:
        with self._lock:
            self._refresh()
            return [self._registered(each) for each in self._state.versions(subject)]

    def subjects(self) -> list[str]:
        with self._lock:
            self._refresh()
            return [name for name, is_live in self._state.subjects() if is_live]

    def mode(self, subject: str | None = None) -> Level:
        with self._lock:
            self._refresh()
            return self._state.level(subject)

    def set_mode(self, mode: Level | str, subject: str | None = None) -> None:
        chosen = Level(str(mode).upper())
        with self._lock:
            config = self._state.configs.get(subject, Config())
            changed = msgspec.structs.replace(config, compatibility_level=chosen)
            offset = self._topic.append(ConfigKey(subject), changed)
            self._refresh(offset + 1)

    def refresh(self) -> None:
        """Learn what others have registered; the other methods do so by themselves."""
        with self._lock:
            self._refresh()

    def close(self) -> None:
        with self._lock:
            self._topic.close()

    def _refresh(self, up_to: int | None = None) -> None:
        for record in self._topic.read(up_to):
            self._state.apply(record)

    def _find(self, subject: str, text: str) -> RegisteredSchema | None:
        wanted = canonical(json.loads(text))
        for version in self._state.versions(subject):
            found = self._registered(version)
            if found.type is SchemaType.AVRO and found.canonical == wanted:
                return found
        return None

    def _registered(self, version: Version) -> RegisteredSchema:
        schema = version.schema
        try:
            dependencies = self._state.dependencies(schema.references, version.subject)
        except MissingReference as problem:
            raise SchemaError(f"{version.subject} version {version.version}: {problem}") from None
        return RegisteredSchema(
            version.subject,
            version.version,
            version.id,
            schema.schema,
            schema.schema_type,
            schema.references,
            tuple(dependencies),
            self._state.guid(context_of(version.subject), version.id),
        )

    def _problem(self, subject: str, text: str) -> str | None:
        level = self._state.level(subject)
        known = [self._registered(version) for version in self._state.versions(subject)]
        other = next((each for each in known if each.type is not SchemaType.AVRO), None)
        if other is not None and level is not Level.NONE:
            return f"version {other.version} has the type {other.type}"
        return level.problem(json.loads(text), [(each.version, each.schema) for each in known])


def _require_avro(kind: SchemaType, references: Iterable[Reference]) -> None:
    if kind is not SchemaType.AVRO or list(references):
        raise SchemaError(
            "without a registry you can register only Avro, and only without references; give a "
            "registry's address (a broker's --http)"
        )


def _text(schema: AvroSchema) -> str:
    parsed = (
        json.loads(schema) if isinstance(schema, str) and schema.lstrip()[:1] in '{["' else schema
    )
    parse_avro(parsed)
    return schema_text(parsed)
