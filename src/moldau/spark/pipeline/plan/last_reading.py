"""The last reading of a source: its columns in an earlier plan, and the version they are from.

Records of that version may still be unread. A plan that reads them without a column that it had, or
with another type, would drop what is in them, so it needs the user's consent: `may_change`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moldau.spark.formats.column_changes import Changes, column_changes
from moldau.spark.formats.errors import FormatError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from moldau.schemas import RegisteredSchema


@dataclass(frozen=True, slots=True)
class LastReading:
    """`version` is the subject and the number; None if the schema was in the pipeline's file."""

    columns: StructType
    version: tuple[str, int] | None

    def to_json(self) -> dict[str, Any]:
        return {"columns": self.columns.jsonValue(), "version": self.version}

    @classmethod
    def of_json(cls, value: Any) -> LastReading:
        from pyspark.sql.types import StructType

        version = value["version"] and (str(value["version"][0]), int(value["version"][1]))
        return cls(StructType.fromJson(value["columns"]), version)

    def version_to_read_by(
        self,
        latest: RegisteredSchema,
        versions: Sequence[RegisteredSchema],
        columns_of: Callable[[RegisteredSchema], StructType],
        *,
        accepted: Collection[str],
        keeps: bool,
    ) -> tuple[RegisteredSchema, str]:
        """Return the latest version, or with `keeps` that of the last run, if the latest only lacks
        columns and its records can be read by it; and what to say about that.

        FormatError if columns would be lost all the same.
        """
        columns = columns_of(latest)
        changes = refused_changes(self.columns, columns, accepted)
        if not changes.has_losses:
            return latest, ""
        kept = next((v for v in versions if (v.subject, v.version) == self.version), None)
        number = f"version {latest.version} of {latest.subject}"
        if (
            keeps
            and kept is not None
            and changes.has_only_missing
            and _reads(kept, latest, columns_of)
        ):
            return kept, (
                f"{number} lacks what the last run read ({changes}), so all is still read by "
                f"version {kept.version}. To leave it out, list it in 'may_change'"
            )
        raise FormatError(
            f"{number} does not go with the columns that the last run read ({changes}), and "
            "unread records may have them. Register a version that keeps them and their types, or "
            "give a 'schema_file' that does. To go on without them all the same, list them in "
            "'may_change'"
        )


def refused_changes(before: StructType, after: StructType, accepted: Collection[str]) -> Changes:
    """Return how the columns differ, without the losses that are accepted."""
    changes = column_changes(before, after)
    for losses in (changes.changed, changes.narrowed, changes.missing):
        losses[:] = [loss for loss in losses if not _is_accepted(loss, accepted)]
    return changes


def _is_accepted(loss: str, accepted: Collection[str]) -> bool:
    """Return whether a column, as in `place.lat (int)`, is in the list, or inside one that is."""
    path = loss.rpartition(" (")[0]
    starts = tuple(f"{each}{mark}" for each in accepted for mark in ".[{")
    return path in accepted or path.startswith(starts)


def _reads(
    kept: RegisteredSchema,
    latest: RegisteredSchema,
    columns_of: Callable[[RegisteredSchema], StructType],
) -> bool:
    """Return whether records of the latest version, which has fewer columns, parse by the kept."""
    from moldau.schemas.avro.compatibility import reading_problem
    from moldau.schemas.schema import SchemaType

    if kept.type is SchemaType.AVRO:
        texts = kept.self_contained, latest.self_contained
        return reading_problem(*map(json.loads, texts)) is None
    # A message without a field has null or zero there.
    return kept.type is SchemaType.PROTOBUF or _is_optional(columns_of(kept), columns_of(latest))


def _is_optional(kept: DataType, latest: DataType) -> bool:
    """Return whether what the latest lacks may be null in the kept."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kept, ArrayType) and isinstance(latest, ArrayType):
        return _is_optional(kept.elementType, latest.elementType)
    if isinstance(kept, MapType) and isinstance(latest, MapType):
        return _is_optional(kept.valueType, latest.valueType)
    if not isinstance(kept, StructType) or not isinstance(latest, StructType):
        return True
    there = {field.name: field.dataType for field in latest.fields}
    return all(
        _is_optional(field.dataType, there[field.name]) if field.name in there else field.nullable
        for field in kept.fields
    )
