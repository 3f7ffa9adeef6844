"""Registered schemas, as programs get them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from moldau.schemas.avro.schema import AvroSchema, self_contained
from moldau.schemas.schema import Dependency, Reference, SchemaType


@dataclass(frozen=True)
class RegisteredSchema:
    """A version of a subject. The same schema has the same id under every subject.

    `dependencies` are the texts of the schemas that it refers to, each behind those that it needs.
    The `guid` is empty where a registry tells none.
    """

    subject: str
    version: int
    id: int
    text: str
    type: SchemaType = SchemaType.AVRO
    references: tuple[Reference, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    guid: str = ""

    @cached_property
    def schema(self) -> Any:
        """As fastavro takes it."""
        if self.type is not SchemaType.AVRO:
            raise ValueError(f"version {self.version} of {self.subject} is {self.type}, not AVRO")
        return AvroSchema(self.text, self.dependencies).parsed

    @cached_property
    def self_contained(self) -> str:
        """The text with the named types of other schemas in it, for readers that know of none."""
        if self.type is not SchemaType.AVRO or not self.dependencies:
            return self.text
        return self_contained(self.text, self.dependencies)

    @cached_property
    def canonical(self) -> str:
        return AvroSchema(self.text, self.dependencies).canonical()
