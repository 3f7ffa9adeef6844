"""A pipeline file: read, and checked as far as possible without Spark or a broker."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from moldau.client.connection import bootstrap_address
from moldau.peer.view import parse_bootstrap
from moldau.spark.formats import METADATA
from moldau.spark.pipeline.errors import PipelineError, Problem, nearest
from moldau.spark.pipeline.file.places import Places
from moldau.spark.pipeline.file.settings import (
    SINK_TYPES,
    SINKS,
    AnySink,
    DeltaSinkSettings,
    GeneralSettings,
    ParquetSink,
    PipelineSettings,
    SourceSettings,
    TableSettings,
    TopicSink,
)

T = TypeVar("T")
Override = str | int | float | bool

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FIELD_PATH = re.compile(r" - at `\$\.?(.*)`$")
_UNKNOWN = re.compile(r"unknown field `(.*?)`")
_MISSING = re.compile(r"missing required field `(.*?)`")
_TOML_LINE = re.compile(r"\(at line (\d+), column \d+\)|\(at end of document\)")
_INTERVAL = re.compile(
    r"\s*\d+(\.\d+)?\s*(micro|milli)?(second|minute|hour|day|week)s?\s*", re.IGNORECASE
)
_TOP = ("name", "bootstrap", "checkpoint", "trigger", "spark", "sources", "tables", "sinks")


@dataclass(frozen=True)
class PipelineFile:
    """The settings of a file, and where each of them stands."""

    path: Path
    folder: Path
    settings: PipelineSettings
    places: Places

    def problem(self, message: str, *path: str) -> Problem:
        """Describe what is wrong with the setting at this path."""
        return Problem(message, str(self.path), self.places.line(path), part_of(path))

    def resolve(self, path: str) -> str:
        """Return a path of the file, which is relative to the pipeline's folder; a URL stays."""
        return path if "://" in path else str(self.folder / path)


def part_of(path: tuple[str, ...]) -> str:
    """`source views`, for messages."""
    kinds = {"sources": "source", "tables": "table", "sinks": "sink"}
    return f"{kinds[path[0]]} {path[1]}" if len(path) > 1 and path[0] in kinds else ""


def read_file(
    path: Path,
    *,
    bootstrap: str | None = None,
    folder: Path | None = None,
    overrides: Mapping[str, Override] | None = None,
) -> PipelineFile:
    """Read a file; PipelineError has all problems, with their lines.

    `bootstrap` goes before what the file says. `overrides` replaces single settings, named with
    dots: `sinks.raw.path`. Relative paths begin at `folder`, or at the file's own.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
        raise PipelineError(Problem(f"{path} cannot be read: {reason}")) from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise PipelineError(_not_toml(path, text, problem)) from None
    for name, value in (overrides or {}).items():
        _override(content, name, value)
    return _Reading(path, Places(text), content).read(bootstrap, folder)


def _not_toml(path: Path, text: str, problem: tomllib.TOMLDecodeError) -> Problem:
    found = _TOML_LINE.search(str(problem))
    line = int(found[1]) if found and found[1] else text.count("\n") + 1
    return Problem(f"not TOML: {_TOML_LINE.sub('', str(problem)).strip()}", str(path), line)


def _override(content: dict[str, Any], name: str, value: Override) -> None:
    *tables, key = name.split(".")
    for table in tables:
        content = content.setdefault(table, {})
        if not isinstance(content, dict):
            raise PipelineError(Problem(f"{name} cannot be set: {table} is not a table"))
    content[key] = value


class _Reading:
    """One reading of a file, which collects problems."""

    def __init__(self, path: Path, places: Places, content: dict[str, Any]) -> None:
        self._path = path
        self._places = places
        self._content = content
        self._problems: list[Problem] = []

    def read(self, bootstrap: str | None, folder: Path | None) -> PipelineFile:
        top = {
            name: value
            for name, value in self._content.items()
            if name not in ("sources", "tables", "sinks")
        }
        name = (
            self._path.stem if self._path.stem != "pipeline" else self._path.resolve().parent.name
        )
        top.setdefault("name", name)
        top["bootstrap"] = bootstrap or top.get("bootstrap") or bootstrap_address()
        top.setdefault("checkpoint", f"checkpoints/{top['name']}")
        general = self._convert(top, GeneralSettings, ())
        sources = self._section("sources", lambda _: SourceSettings)
        tables = self._section("tables", lambda _: TableSettings)
        sinks = self._section("sinks", self._sink_class)
        settings = None
        if general is not None:
            settings = PipelineSettings(general, sources, tables, sinks)
            self._check(settings)
        if self._problems or settings is None:
            raise PipelineError(*sorted(self._problems, key=lambda each: each.line))
        home = folder or self._path.resolve().parent
        return PipelineFile(self._path, home, settings, self._places)

    def _section(self, section: str, kind: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        entries = self._content.get(section, {})
        if not isinstance(entries, dict):
            self._add(f"{section} must be a table: [{section}.NAME]", section)
            return found
        for name, body in entries.items():
            if _NAME.fullmatch(name) is None:
                self._add(
                    f"{name!r} is not a valid name in SQL; use letters, digits and _", section, name
                )
            elif not isinstance(body, dict):
                self._add(f"{name} must be a table: [{section}.{name}]", section, name)
            else:
                chosen = kind((section, name))
                value = chosen and self._convert(body, chosen, (section, name))
                if value is not None:
                    found[name] = value
        return found

    def _sink_class(self, path: tuple[str, str]) -> type[AnySink] | None:
        kind = self._content[path[0]][path[1]].get("type")
        if kind in SINKS:
            return SINKS[kind]
        if kind is None:
            self._add(f"the setting 'type' is missing; it is one of {', '.join(SINK_TYPES)}", *path)
        else:
            self._add(
                f"there is no sink of type {kind!r}{nearest(str(kind), SINK_TYPES)}", *path, "type"
            )
        return None

    def _convert(self, body: Any, kind: type[T], path: tuple[str, ...]) -> T | None:
        try:
            return msgspec.convert(body, kind)
        except msgspec.ValidationError as problem:
            self._add_invalid(str(problem), kind, path)
        return None

    def _add_invalid(self, text: str, kind: type, path: tuple[str, ...]) -> None:
        at = _FIELD_PATH.search(text)
        inner = tuple(re.findall(r"[\w-]+", at[1])) if at else ()
        text = _FIELD_PATH.sub("", text)
        unknown, missing = _UNKNOWN.search(text), _MISSING.search(text)
        if unknown is not None:
            known = _known(kind, inner, path)
            message = f"there is no setting {unknown[1]!r}{nearest(unknown[1], known)}"
            self._add(message, *path, *inner, unknown[1])
        elif missing is not None:
            self._add(f"the setting {missing[1]!r} is missing", *path, *inner)
        else:
            words = (
                text.replace("`", "")
                .replace("Expected", "expected")
                .replace("Invalid enum value", "there is no choice")
            )
            self._add(f"{'.'.join(inner)}: {words}", *path, *inner)

    def _add(self, message: str, *path: str) -> None:
        place = self._places.line(path)
        self._problems.append(Problem(message, str(self._path), place, part_of(path)))

    def _check(self, settings: PipelineSettings) -> None:
        try:
            parse_bootstrap(settings.bootstrap)
        except ValueError as problem:
            self._add(f"bootstrap: {problem}", "bootstrap")
        self._interval(settings.general.trigger, "trigger")
        if not self._content.get("sources"):
            self._add("there is no source: [sources.NAME]")
        if not self._content.get("sinks"):
            self._add("there is no sink: [sinks.NAME]")
        for name, source in settings.sources.items():
            self._check_source(name, source)
        for name in settings.tables:
            if name in settings.sources:
                self._add(f"{name} is already the name of a source", "tables", name)
        for name, sink in settings.sinks.items():
            self._check_sink(name, sink, settings)
        self._check_targets(settings)

    def _check_source(self, name: str, source: SourceSettings) -> None:
        path = ("sources", name)
        if bool(source.topics) == bool(source.pattern):
            self._add("give either 'topic' or 'pattern'", *path)
        if source.format == "json" and not source.schema and not source.schema_file:
            self._add("JSON needs a 'schema', such as \"time TIMESTAMP, user STRING\"", *path)
        if source.schema and source.schema_file:
            self._add("give either 'schema' or 'schema_file'", *path, "schema_file")
        if source.format in ("string", "raw") and (source.schema or source.schema_file):
            self._add(f"the format {source.format} has no schema", *path, "schema")
        if source.format == "raw" and source.tombstones is not None:
            self._add("the format raw returns all records as they are", *path, "tombstones")
        if source.watermark is not None:
            self._interval(source.watermark.delay, *path, "watermark", "delay")
        for column in source.metadata:
            if column not in METADATA:
                hint = nearest(column, METADATA)
                self._add(f"there is no metadata {column!r}{hint}", *path, "metadata")
        if source.max_records_per_batch < 1:
            self._add("max_records_per_batch must be 1 or more", *path, "max_records_per_batch")

    def _check_sink(self, name: str, sink: AnySink, settings: PipelineSettings) -> None:
        path = ("sinks", name)
        known = [*self._content.get("sources", ()), *self._content.get("tables", ())]
        if sink.from_ not in known:
            hint = nearest(sink.from_, known)
            self._add(f"there is no source or table {sink.from_!r}{hint}", *path, "from")
        if sink.trigger is not None:
            self._interval(sink.trigger, *path, "trigger")
        problem = _mode_problem(sink)
        if problem:
            self._add(problem, *path, "mode")

    def _check_targets(self, settings: PipelineSettings) -> None:
        seen: dict[str, str] = {}
        for name, sink in settings.sinks.items():
            if isinstance(sink, (DeltaSinkSettings, ParquetSink)):
                other = seen.setdefault(sink.path, name)
                if other != name:
                    self._add(f"sink {other} already writes to {sink.path}", "sinks", name, "path")
            if isinstance(sink, TopicSink):
                for source_name, source in settings.sources.items():
                    if sink.topic in source.topics:
                        message = f"source {source_name} reads {sink.topic}: that would be a loop"
                        self._add(message, "sinks", name, "topic")

    def _interval(self, text: str, *path: str) -> None:
        if _INTERVAL.fullmatch(text) is None:
            self._add(f"{text!r} is not a time such as '10 seconds'", *path)


def _known(kind: type, inner: tuple[str, ...], path: tuple[str, ...]) -> list[str]:
    for name in inner:
        field = next(each for each in msgspec.structs.fields(kind) if each.encode_name == name)
        kind = next(
            (
                each
                for each in getattr(field.type, "__args__", ())
                if hasattr(each, "__struct_fields__")
            ),
            kind,
        )
    if not path and not inner:
        return list(_TOP)
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def _mode_problem(sink: AnySink) -> str:
    """Return why a sink of this kind cannot have its mode; nothing if it can."""
    mode = sink.mode
    if isinstance(sink, DeltaSinkSettings):
        if mode == "update":
            return "a Delta table has the modes append, upsert (with keys) and complete, not update"
        if mode == "upsert" and not sink.keys:
            return "upsert needs 'keys', the columns that identify a row"
        if sink.keys and mode in ("append", "complete"):
            return f"'keys' are for upsert, not for {mode}"
        if sink.orders and not sink.keys:
            return "'order_by' needs 'keys', the columns that identify a row"
        if sink.delete_where and not sink.keys:
            return "'delete_where' needs 'keys', the columns that identify a row"
    elif isinstance(sink, ParquetSink) and mode not in (None, "append"):
        return (
            f'Parquet files can only be appended to, so {mode} is not possible; use type = "delta"'
        )
    elif mode == "upsert":
        return (
            "upsert is for Delta tables; use update to send changed rows to a topic, by their key"
        )
    elif isinstance(sink, TopicSink) and mode == "complete":
        return (
            "complete would send every row again with each batch; use append or update for a topic"
        )
    return ""
