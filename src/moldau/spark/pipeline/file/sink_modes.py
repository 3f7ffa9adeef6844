"""The modes of sinks: which of them a kind of sink can have."""

from __future__ import annotations

from moldau.spark.pipeline.file.settings import (
    AnySink,
    LakeSinkSettings,
    ParquetSink,
    TopicSink,
)


def mode_problem(sink: AnySink) -> str:
    """Return why a sink of this kind cannot have its mode; nothing if it can."""
    mode = sink.mode
    if isinstance(sink, LakeSinkSettings):
        if mode == "update":
            kind = "a Delta" if sink.type == "delta" else "an Iceberg"
            return f"{kind} table has the modes append, upsert (with keys) and complete, not update"
        if mode == "upsert" and not sink.keys:
            return "upsert needs 'keys', the columns that identify a row"
        if sink.keys and mode in ("append", "complete"):
            return f"'keys' are for upsert, not for {mode}"
        if sink.orders and not sink.keys:
            return "'order_by' needs 'keys', the columns that identify a row"
        if sink.delete_where and not sink.keys:
            return "'delete_where' needs 'keys', the columns that identify a row"
        return _history_problem(sink)
    if isinstance(sink, ParquetSink) and mode not in (None, "append"):
        return (
            f'Parquet files can only be appended to, so {mode} is not possible; use type = "delta"'
        )
    if mode == "upsert":
        return (
            "upsert is for Delta and Iceberg tables; use update to send changed rows to a topic, "
            "by their key"
        )
    if isinstance(sink, TopicSink) and mode == "complete":
        return (
            "complete would send every row again with each batch; use append or update for a topic"
        )
    return ""


def _history_problem(sink: LakeSinkSettings) -> str:
    for name in ("merge_where", "valid_from"):
        if getattr(sink, name) and not sink.keys:
            return f"'{name}' needs 'keys', the columns that identify a row"
    if sink.scd == 2 and not sink.keys:
        return "'scd' needs 'keys', the columns that identify a row"
    if sink.scd == 2 and sink.merge_where:
        return "'merge_where' is for scd = 1: a history keeps every event"
    if sink.scd == 1 and sink.valid_from:
        return "'valid_from' is for scd = 2"
    return ""
