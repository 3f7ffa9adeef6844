"""Errors of lake tables."""

from __future__ import annotations


class LakeError(Exception):
    """The table cannot be written as asked; nothing of the batch is in it."""


class SchemaConflict(LakeError):
    """A batch does not fit the table: the message names the column and both types."""

    def __init__(self, table: str, column: str, problem: str, remedy: str) -> None:
        super().__init__(f"{table}: column {column!r} {problem}; {remedy}")
        self.table = table
        self.column = column


class OffsetConflict(LakeError):
    """A batch holds records that the table has already, from another run of the same application.

    This is what a lost checkpoint looks like when the new query does not go on where the table
    says.
    """
