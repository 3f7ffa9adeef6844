"""Reading values of registered schemas: one schema for all versions, and the versions that are
known at the start."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moldau.spark.errors import log
from moldau.spark.formats.errors import FormatError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from moldau.schemas import RegisteredSchema
    from moldau.schemas.schema import Dependency

# A topic's values are registered under its name with this.
VALUE = "-value"


def subjects_of(topics: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{topic}{VALUE}" for topic in topics)


@dataclass(frozen=True, slots=True)
class RegisteredReading:
    """The running schema with its columns, and the versions that its subjects have at the start.

    Fields that such a version has beyond the schema are left out: whoever gave the schema, or
    registered a newer version without them, wanted so. Those of later versions stop the query.
    """

    format: str
    schema: StructType
    text: str
    dependencies: tuple[Dependency, ...]
    versions: Sequence[RegisteredSchema]
    subjects: tuple[str, ...]
    schema_file: str | None
    # The subject and the number of the version that the schema is; None if it is in a file.
    version: tuple[str, int] | None

    @property
    def known(self) -> dict[int, str]:
        return {version.id: version.self_contained for version in self.versions}

    @property
    def guids(self) -> dict[str, int]:
        return {version.guid: version.id for version in self.versions if version.guid}

    @property
    def remedy(self) -> str:
        """Say what to do when a record has fields that the schema lacks."""
        names = " and ".join(self.subjects) or "its subject"
        if self.schema_file is None:
            return (
                "Start the pipeline again: it will use the latest version of "
                f"{names} and resume at this batch. If that version lacks them too, "
                "give a 'schema_file' that has them"
            )
        return (
            f"Add them to {self.schema_file} and start the pipeline again: it resumes at this "
            f"batch. Fields of the versions of {names} known at the start that the file lacks are "
            "left out"
        )

    def say_what_is_left_out(self, source: str) -> None:
        for version in self.versions:
            extra = self._extra(version)
            if extra:
                log.warning(
                    "source %s: fields of version %d of %s that the schema lacks are left out: %s",
                    source,
                    version.version,
                    version.subject,
                    ", ".join(extra),
                )

    def _extra(self, version: RegisteredSchema) -> list[str]:
        if self.format == "avro":
            from moldau.schemas.avro.extra_fields import extra_fields

            return extra_fields(json.loads(self.text), json.loads(version.self_contained))
        from moldau.spark.formats.registered_values import extra_columns, registered_columns

        try:
            columns = registered_columns(self.format, version.text, version.dependencies)
        except FormatError:
            # Its records are dead letters, which lose nothing.
            return []
        return extra_columns(self.schema, columns)
