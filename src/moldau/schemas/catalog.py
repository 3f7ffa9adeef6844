"""The catalog of schemas, wherever it is kept: what serializers and Spark ask for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Self

from moldau.client.avro import AvroSchema
from moldau.schemas.levels import Level
from moldau.schemas.registered import RegisteredSchema
from moldau.schemas.schema import Reference, SchemaType


class SchemaCatalog(ABC):
    """Subjects, their versions, and ids that never change. Any thread may use it.

    SchemaNotFound for what is not there, SchemaError for what goes wrong.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def register(
        self,
        subject: str,
        schema: AvroSchema,
        kind: SchemaType = SchemaType.AVRO,
        references: Iterable[Reference] = (),
    ) -> RegisteredSchema:
        """Register the schema under this subject, unless it is there, and return it with its
        version and id.

        Raises `IncompatibleSchema` when the subject's level does not let it in.
        """

    @abstractmethod
    def find(
        self,
        subject: str,
        schema: AvroSchema,
        kind: SchemaType = SchemaType.AVRO,
        references: Iterable[Reference] = (),
    ) -> RegisteredSchema | None:
        """Return the version of a subject that has this schema."""

    @abstractmethod
    def problem(
        self,
        subject: str,
        schema: AvroSchema,
        kind: SchemaType = SchemaType.AVRO,
        references: Iterable[Reference] = (),
    ) -> str | None:
        """Return why a schema could not be registered; None if it could."""

    @abstractmethod
    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return the schema of an id, from memory if it is known."""

    @abstractmethod
    def by_guid(self, guid: str) -> RegisteredSchema:
        """Return the schema of a guid, from memory if it is known."""

    def named(self, name: int | str) -> RegisteredSchema:
        """Return the schema that a record names, by its id or its guid."""
        return self.by_id(name) if isinstance(name, int) else self.by_guid(name)

    @abstractmethod
    def version(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """Return a version of a subject, or its latest."""

    @abstractmethod
    def versions(self, subject: str) -> list[RegisteredSchema]:
        """Return all versions of a subject, oldest first; none if it is not there."""

    @abstractmethod
    def subjects(self) -> list[str]: ...

    @abstractmethod
    def mode(self, subject: str | None = None) -> Level:
        """Return the level of a subject, or the one of all that have none of their own."""

    @abstractmethod
    def set_mode(self, mode: Level | str, subject: str | None = None) -> None:
        """Set the level of one subject, or of all that have none of their own."""
