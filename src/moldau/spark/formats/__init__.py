"""Formats of a record's value: JSON, Avro, text or bytes, to columns and back.

Records that do not parse are not lost and stop nothing: see `moldau.spark.sink.dead_letters`.
"""

from __future__ import annotations

from moldau.spark.formats.spec import FORMATS, METADATA, BadRecords, Format, Tombstones, ValueSpec

__all__ = ["FORMATS", "METADATA", "BadRecords", "Format", "Tombstones", "ValueSpec"]
