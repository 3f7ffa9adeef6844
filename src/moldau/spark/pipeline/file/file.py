"""A pipeline file: read, and checked as far as possible without Spark or a broker."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from moldau.client.connection import bootstrap_address
from moldau.peer.view import parse_bootstrap
from moldau.security.client import ClientSecurity, is_security
from moldau.security.references import (
    BrokenReference,
    resolve,
    resolve_property,
    with_absolute_paths,
)
from moldau.settings import InvalidSetting
from moldau.spark.formats import METADATA
from moldau.spark.formats.spec import Registered
from moldau.spark.pipeline.errors import PipelineError, Problem, nearest
from moldau.spark.pipeline.file.intervals import interval_problem
from moldau.spark.pipeline.file.places import Places
from moldau.spark.pipeline.file.settings import (
    SINK_TYPES,
    SINKS,
    AnySink,
    GeneralSettings,
    LakeSinkSettings,
    PipelineSettings,
    SourceSettings,
    StepSettings,
    TableSettings,
)
from moldau.spark.pipeline.file.sink_modes import mode_problem
from moldau.spark.pipeline.file.targets import target_problems

T = TypeVar("T")
Override = str | int | float | bool

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FIELD_PATH = re.compile(r" - at `\$\.?(.*)`$")
_UNKNOWN = re.compile(r"unknown field `(.*?)`")
_MISSING = re.compile(r"missing required field `(.*?)`")
_TOML_LINE = re.compile(r"\(at line (\d+), column \d+\)|\(at end of document\)")
_TOP = (
    *("name", "bootstrap", "checkpoint", "registry", "trigger", "evolution", "spark", "client"),
    *("restarts", "alert", "status"),
    *("sources", "tables", "steps", "sinks"),
)
_READABLE = ("sources", "tables", "steps")
# The settings by which others are asked, with secrets among them.
_CONNECTIONS = ("client", "registry")


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

    def client_options(self) -> dict[str, str]:
        """Return the options by which a source or sink gets in at the brokers.

        They hold references, not what these refer to: Spark shows options."""
        return {f"kafka.{name}": text for name, text in self.settings.general.client.items()}

    def security(self) -> ClientSecurity | None:
        """Return how this process gets in at the brokers; None leaves it to the environment."""
        client = self.settings.general.client
        properties = {name: resolve_property(name, text) for name, text in client.items()}
        return ClientSecurity.parse(properties)

    def in_order(self) -> list[tuple[str, TableSettings | StepSettings]]:
        """Return the tables and steps as they stand in the file: each sees those above it."""
        settings = self.settings
        lines = [(self.places.line(("tables", name)), name) for name in settings.tables]
        lines += [(self.places.line(("steps", name)), name) for name in settings.steps]
        both: dict[str, TableSettings | StepSettings] = {**settings.tables, **settings.steps}
        return [(name, both[name]) for _, name in sorted(lines)]

    def missing(self, name: str, wanted: str, built: Iterable[str]) -> str:
        """Return why a table or step cannot read what it wants to."""
        if wanted == name:
            return f"{name} reads itself"
        for kind, names in (("table", self.settings.tables), ("step", self.settings.steps)):
            if wanted in names:
                return f"{kind} {wanted} is defined below this one; move it above"
        return f"there is no source, table or step {wanted!r}{nearest(wanted, built)}"

    def resolve(self, path: str) -> str:
        """Return a path of the file, which is relative to the pipeline's folder; a URL stays."""
        return path if "://" in path else str(self.folder / path)


def part_of(path: tuple[str, ...]) -> str:
    """`source views`, for messages."""
    kinds = {"sources": "source", "tables": "table", "steps": "step", "sinks": "sink"}
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
        home = folder or self._path.resolve().parent
        self._content = self._resolved(self._content, (), home)
        if self._problems:
            raise PipelineError(*sorted(self._problems, key=lambda each: each.line))
        top = {
            name: value
            for name, value in self._content.items()
            if name not in ("sources", "tables", "steps", "sinks")
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
        steps = self._section("steps", lambda _: StepSettings)
        sinks = self._section("sinks", self._sink_class)
        settings = None
        if general is not None:
            settings = PipelineSettings(general, sources, tables, steps, sinks)
            self._check(settings)
        if self._problems or settings is None:
            raise PipelineError(*sorted(self._problems, key=lambda each: each.line))
        return PipelineFile(self._path, home, settings, self._places)

    def _resolved(self, value: Any, path: tuple[str, ...], home: Path) -> Any:
        """Return a value with what its texts refer to. Where Spark would show that, it stays a
        reference, which sources and sinks read themselves."""
        if isinstance(value, dict):
            return {key: self._resolved(each, (*path, key), home) for key, each in value.items()}
        if isinstance(value, list):
            return [self._resolved(each, path, home) for each in value]
        if not isinstance(value, str):
            return value
        text = with_absolute_paths(value, home)
        is_path = path[0] in _CONNECTIONS and path[-1].endswith(".location")
        if is_path and not text.startswith("${"):
            text = str(home / text)
        try:
            resolved = resolve(text)
        except BrokenReference as problem:
            self._add(str(problem), *path)
            return value
        is_shown = path[0] in _CONNECTIONS or path[2:3] == ("options",)
        return text if is_shown else resolved

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
        self._check_client(settings.general.client)
        self._check_registry(settings)
        self._interval(settings.general.trigger, "trigger")
        restarts = settings.general.restarts
        self._interval(restarts.first_pause, "restarts", "first_pause")
        self._interval(restarts.longest_pause, "restarts", "longest_pause")
        if restarts.limit < 0:
            self._add(
                "limit must be 0 or more; with 0, the pipeline never restarts", "restarts", "limit"
            )
        if not self._content.get("sources"):
            self._add("there is no source; add [sources.NAME]")
        if not self._content.get("sinks"):
            self._add("there is no sink; add [sinks.NAME]")
        for name, source in settings.sources.items():
            self._check_source(name, source)
        for name in settings.tables:
            if name in settings.sources:
                self._add(f"{name} is already the name of a source", "tables", name)
        for name in settings.steps:
            for kind, names in (("source", settings.sources), ("table", settings.tables)):
                if name in names:
                    self._add(f"{name} is already the name of a {kind}", "steps", name)
        for name, sink in settings.sinks.items():
            self._check_sink(name, sink, settings)
        self._check_targets(settings)

    def _check_client(self, client: Mapping[str, str]) -> None:
        for name in client:
            if not is_security(name):
                self._add(f"{name} is not a security setting", "client", name)
                return
        try:
            ClientSecurity.parse(
                {name: resolve_property(name, text) for name, text in client.items()}
            )
        except InvalidSetting as problem:
            self._add(str(problem), "client", problem.key)

    def _check_registry(self, settings: PipelineSettings) -> None:
        try:
            settings.registry()
        except InvalidSetting as problem:
            self._add(str(problem), "registry", problem.key)

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
        if source.format == "debezium" and source.tombstones == "row":
            self._add("a Debezium tombstone follows a delete; it is not a row", *path, "tombstones")
        if source.format != "debezium" and source.truncates != "fail":
            self._add("'truncates' is for the format debezium", *path, "truncates")
        if source.format == "raw" and source.tombstones is not None:
            self._add("the format raw returns all records unchanged", *path, "tombstones")
        if source.evolution is not None and source.value_format not in Registered:
            self._add(
                "evolution is for registered schemas: avro, json-schema, protobuf",
                *path,
                "evolution",
            )
        if source.may_change and source.value_format not in Registered:
            self._add(
                "may_change is for registered schemas: avro, json-schema, protobuf",
                *path,
                "may_change",
            )
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
        known = [each for part in _READABLE for each in self._content.get(part, ())]
        if sink.from_ not in known:
            hint = nearest(sink.from_, known)
            self._add(f"there is no source, table or step {sink.from_!r}{hint}", *path, "from")
        if sink.trigger is not None:
            self._interval(sink.trigger, *path, "trigger")
        if isinstance(sink, LakeSinkSettings):
            self._interval(sink.delete_retention, *path, "delete_retention")
        problem = mode_problem(sink)
        if problem:
            self._add(problem, *path, "mode")

    def _check_targets(self, settings: PipelineSettings) -> None:
        for message, *setting in target_problems(settings):
            self._add(message, "sinks", *setting)

    def _interval(self, text: str, *path: str) -> None:
        problem = interval_problem(text)
        if problem:
            self._add(problem, *path)


def _known(kind: type, inner: tuple[str, ...], path: tuple[str, ...]) -> list[str]:
    for name in inner:
        field = next(each for each in msgspec.structs.fields(kind) if each.encode_name == name)
        kind = next(
            (
                each
                for each in getattr(field.type, "__args__", (field.type,))
                if hasattr(each, "__struct_fields__")
            ),
            kind,
        )
    if not path and not inner:
        return list(_TOP)
    return [field.encode_name for field in msgspec.structs.fields(kind)]
