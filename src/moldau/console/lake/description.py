"""Descriptions of lake tables: what the console shows of one, whatever keeps its log."""

from __future__ import annotations

from typing import Any

import msgspec

PREVIEWED = 50
MOST_VERSIONS = 50


class TableVersion(msgspec.Struct):
    version: int
    at_ms: int | None
    operation: str


class TablePreview(msgspec.Struct):
    """The first rows; `is_hidden` if they come from a topic with masked fields, so that none are
    shown: a pipeline may have given the fields other names. `note` says why else there are none."""

    columns: list[str]
    rows: list[list[Any]]
    is_hidden: bool = False
    note: str = ""


class TableInfo(msgspec.Struct):
    """A Delta or Iceberg table; `rows` is null where it does not say how many it has. Versions of
    an Iceberg table are its snapshots, by their sequence numbers."""

    path: str
    rows: int | None
    files: int
    bytes: int
    version: int
    versions: list[TableVersion]
    schema: list[dict[str, str]]
    preview: TablePreview
