"""The targets of sinks: no two sinks write to the same, and none to what the pipeline reads."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.spark.pipeline.file.settings import (
    AnySink,
    DeltaSinkSettings,
    IcebergSinkSettings,
    ParquetSink,
    PipelineSettings,
    TopicSink,
)


def target_problems(settings: PipelineSettings) -> Iterator[tuple[str, str, str]]:
    """Each problem with the sink and the setting that it is about."""
    seen: dict[object, str] = {}
    for name, sink in settings.sinks.items():
        setting, target, where = _target(sink)
        if target is not None:
            other = seen.setdefault(target, name)
            if other != name:
                yield f"sink {other} already writes to {where}", name, setting
        if isinstance(sink, IcebergSinkSettings):
            if not sink.warehouse and not sink.catalog:
                message = (
                    "give 'warehouse', a folder for tables and their catalog, or 'catalog' with "
                    "the settings of another catalog"
                )
                yield message, name, "table"
            if "." not in sink.table.strip("."):
                yield (
                    f"{sink.table!r} is not a catalog table name; write namespace.table",
                    name,
                    "table",
                )
        if isinstance(sink, DeltaSinkSettings) and (sink.table or sink.catalog):
            if sink.catalog.get("type") != "glue":
                yield (
                    "a Delta table can be registered only in AWS Glue: set type = 'glue'",
                    name,
                    "catalog",
                )
            if len(list(filter(None, sink.table.split(".")))) != 2:
                yield (
                    f"{sink.table!r} is not a Glue table name; write database.table",
                    name,
                    "table",
                )
        if isinstance(sink, TopicSink):
            for source_name, source in settings.sources.items():
                if sink.topic in source.topics:
                    message = f"source {source_name} reads {sink.topic}: that would be a loop"
                    yield message, name, "topic"


def _target(sink: AnySink) -> tuple[str, object, str]:
    """Return the setting that names what a sink writes to, that itself, and its name."""
    if isinstance(sink, (DeltaSinkSettings, ParquetSink)):
        return "path", sink.path, sink.path
    if isinstance(sink, IcebergSinkSettings):
        catalog = tuple(sorted(sink.catalog.items()))
        return "table", (sink.table, sink.warehouse, catalog), sink.table
    return "", None, ""
