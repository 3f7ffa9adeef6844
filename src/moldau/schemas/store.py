"""The schema store."""

from __future__ import annotations

import json
import threading
import uuid
from typing import Any, Self

from moldau.client.avro import AvroSchema, parse_avro
from moldau.schemas.errors import IncompatibleSchema, SchemaError, SchemaNotFound
from moldau.schemas.modes import Mode
from moldau.schemas.records import ConfigKey, ConfigValue, SchemaKey, SchemaValue, schema_text
from moldau.schemas.state import RegisteredSchema, SchemaState
from moldau.schemas.topic import SchemaTopic

TOPIC = "_schemas"
# Each lost attempt means that another writer has registered something.
TRIES = 100


class SchemaStore:
    """Schemas that evolve: subjects, their versions, and ids that never change.

    Kept in a compacted topic, `_schemas`; there is no server beside the brokers. A writer appends
    its record and reads back to its own offset: whoever came first has the version and the id, and
    the others try again. Any thread may use it; address and settings are given as for a `Producer`.
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
        self._state = SchemaState()
        self._topic = SchemaTopic(bootstrap, topic, settings, replication_factor)
        self.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def register(self, subject: str, schema: AvroSchema) -> RegisteredSchema:
        """Register the schema under this subject, unless it is there, and return it with its
        version and id.

        Raises `IncompatibleSchema` when the subject's mode does not let it in.
        """
        text = _text(schema)
        with self._lock:
            self._refresh()
            for _ in range(TRIES):
                found = self._state.find(subject, text)
                if found is not None:
                    return found
                reason = self._problem(subject, text)
                if reason is not None:
                    raise IncompatibleSchema(subject, self._state.mode(subject), reason)
                self._try_to_register(subject, text)
        raise SchemaError(
            f"could not register a schema under {subject}: {TRIES} attempts "
            "lost a race with other writers"
        )

    def _try_to_register(self, subject: str, text: str) -> None:
        version, schema_id = self._state.next_version(subject), self._state.id_for(text)
        key = SchemaKey(subject, version, uuid.uuid4().hex)
        offset = self._topic.append(key, SchemaValue(subject, version, schema_id, text))
        self._refresh(offset + 1)
        if not self._state.won(key):
            # Readers ignore it anyway; without it, compaction has less to keep.
            self._topic.append(key, None)

    def problem(self, subject: str, schema: AvroSchema) -> str | None:
        """Return why a schema could not be registered; None if it could."""
        with self._lock:
            self._refresh()
            return self._problem(subject, _text(schema))

    def find(self, subject: str, schema: AvroSchema) -> RegisteredSchema | None:
        """Return the version of a subject that has this schema."""
        text = _text(schema)
        with self._lock:
            found = self._state.find(subject, text)
            if found is None:
                self._refresh()
                found = self._state.find(subject, text)
            return found

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return the schema of an id, from memory if it is known."""
        found = self._state.by_id(schema_id)
        if found is None:
            with self._lock:
                self._refresh()
                found = self._state.by_id(schema_id)
        if found is None:
            raise SchemaNotFound(f"no schema has the id {schema_id}")
        return found

    def version(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """Return a version of a subject, or its latest."""
        versions = self.versions(subject)
        for found in versions:
            if found.version == (version or versions[-1].version):
                return found
        raise SchemaNotFound(f"{subject} has no version {version or 1}")

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """Return all versions of a subject, oldest first."""
        with self._lock:
            self._refresh()
            return self._state.versions(subject)

    def subjects(self) -> list[str]:
        with self._lock:
            self._refresh()
            return self._state.subjects()

    def mode(self, subject: str | None = None) -> Mode:
        """Return the mode of a subject, or the one of all that have none of their own."""
        with self._lock:
            self._refresh()
            return self._state.mode(subject)

    def set_mode(self, mode: Mode | str, subject: str | None = None) -> None:
        """For one subject, or for all that have none of their own."""
        chosen = Mode(str(mode).upper())
        with self._lock:
            offset = self._topic.append(ConfigKey(subject), ConfigValue(chosen))
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

    def _problem(self, subject: str, text: str) -> str | None:
        versions = [(found.version, found.schema) for found in self._state.versions(subject)]
        return self._state.mode(subject).problem(json.loads(text), versions)


def _text(schema: AvroSchema) -> str:
    parsed = (
        json.loads(schema) if isinstance(schema, str) and schema.lstrip()[:1] in '{["' else schema
    )
    parse_avro(parsed)
    return schema_text(parsed)
