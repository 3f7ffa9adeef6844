"""Errors of a format or its schema, found before any record is read."""

from __future__ import annotations

from collections.abc import Sequence


class FormatError(ValueError):
    """A schema that the format cannot have, or that is none."""


class BadRecord(Exception):
    """A record that does not parse, of a source that has no topic for such records."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(
            f"the record at {topic}-{partition} offset {offset} does not parse: "
            f"{reason}. To set such records aside, name a topic in dead_letters"
        )


class NewFields(Exception):
    """A record with fields that the running schema lacks, or cannot hold: to read it would drop
    them."""

    def __init__(self, row: int, schema_id: int | str, fields: Sequence[str], remedy: str) -> None:
        super().__init__(row, schema_id, fields, remedy)
        self.row = row
        self._schema_id = schema_id
        self._fields = fields
        self._remedy = remedy
        self._place = ""

    def at(self, topic: str, partition: int, offset: int) -> NewFields:
        """Return the same, with the record's place."""
        self._place = f" at {topic}-{partition} offset {offset}"
        return self

    def __str__(self) -> str:
        return (
            f"the record{self._place} has fields that the running schema lacks: "
            f"{', '.join(self._fields)}; it was written with schema id {self._schema_id}. "
            f"{self._remedy}"
        )


class Truncated(Exception):
    """A record that says that all rows of a table are gone."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row
        self._place = ""

    def at(self, topic: str, partition: int, offset: int) -> Truncated:
        """Return the same, with the record's place."""
        self._place = f" at {topic}-{partition} offset {offset}"
        return self

    def __str__(self) -> str:
        return (
            f"the record{self._place} says that the table was truncated, but the rows that were "
            "already written would stay. Remove those that should go, then set "
            'truncates = "dead-letter" to set such records aside'
        )
