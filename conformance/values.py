"""Answers as plain values in which two brokers can be compared.

What must differ from broker to broker (ids, ports, the time of an append) is replaced by a symbol.
Texts of errors are kept to be shown; two texts count as the same, a text and none do not.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from moldau.records.batch import HEADER_SIZE, read_header
from moldau.wire.messages import milliseconds


@dataclass(frozen=True, slots=True)
class Text:
    """A sentence for people: equal to every other one."""

    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return repr(self.text)


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two answers are not the same."""

    path: str
    kafka: Any
    moldau: Any


class Symbols:
    """Names for the values of one broker that another broker cannot have too."""

    def __init__(self, port: int, scope: str = "", locked_port: int = 0) -> None:
        self._ports = {port, locked_port} - {0}
        self._scope = f"{scope}-"
        self._names: dict[tuple[str, object], str] = {}
        self._counts: dict[str, int] = {}
        self._texts: dict[str, str] = {}

    def know(self, kind: str, value: object, name: str) -> None:
        """Show `value` as `name` from now on."""
        self._names[kind, value] = f"<{name}>".replace(self._scope, "~")

    def of(self, kind: str, value: object) -> str:
        """The name of a value; numbered in the order of appearance where it has none."""
        key = (kind, value)
        if key not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[key] = f"<{kind} {self._counts[kind]}>"
        return self._names[key]

    def plain(self, value: Any, field: str = "") -> Any:
        """kio's object, or a part of one, as dicts, lists, numbers and texts."""
        if is_dataclass(value) and not isinstance(value, type):
            name, topic_id = getattr(value, "name", None), getattr(value, "topic_id", None)
            if name and topic_id is not None and ("topic id", topic_id) not in self._names:
                self.know("topic id", topic_id, f"id of {name}")
            return {
                each.name: self.plain(getattr(value, each.name), each.name)
                for each in fields(value)
            }
        if isinstance(value, Mapping):
            return {key: self.plain(item, str(key)) for key, item in value.items()}
        if isinstance(value, tuple | list):
            items = [self.plain(item, field) for item in value]
            if field in _KEYED and len({item["name"] for item in items}) == len(items):
                return {item.pop("name"): item for item in items}
            return items
        if field in _SPECIAL and value is not None:
            return _SPECIAL[field](self, value)
        if isinstance(value, UUID):
            return str(value) if value.int <= 1 else self.of("topic id", value)
        if isinstance(value, timedelta):
            return milliseconds(value)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1000)
        if isinstance(value, Enum):
            return value.name
        # The same case in another version then reads the same.
        return value.replace(self._scope, "~") if isinstance(value, str) else value

    def _is_port(self, value: int) -> Any:
        return "<port>" if value in self._ports else value

    def _time(self, value: Any) -> Any:
        moment = int(value.timestamp() * 1000) if isinstance(value, datetime) else value
        return "<now>" if moment > 0 else moment

    def _nonzero(self, kind: str, value: int) -> Any:
        return self.of(kind, value) if value > 0 else value

    def _member(self, value: str) -> str:
        return self.of("member", value) if _GENERATED.search(value) else value


# Settings have names; the order in which they are listed says nothing.
_KEYED = ("configs",)
_GENERATED = re.compile(r"-?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
_SPECIAL: dict[str, Any] = {
    "port": Symbols._is_port,
    "cluster_id": lambda symbols, value: "<cluster id>",
    "log_append_time": Symbols._time,
    "producer_id": lambda symbols, value: symbols._nonzero("producer", value + 1),
    "session_id": lambda symbols, value: symbols._nonzero("session", value),
    "member_id": Symbols._member,
    "leader": Symbols._member,
    "error_message": lambda symbols, value: Text(value),
    "batch_index_error_message": lambda symbols, value: Text(value),
    "documentation": lambda symbols, value: Text(value),
    "log_dir": lambda symbols, value: "<folder>",
    "total_bytes": lambda symbols, value: "<bytes>" if value > 0 else value,
    "usable_bytes": lambda symbols, value: "<bytes>" if value > 0 else value,
    "records": lambda symbols, value: shown_batches(bytes(value)),
}


def shown_batches(data: bytes) -> dict[str, Any]:
    """The whole batches in `data`, payload as text, and how many bytes of another come last."""
    found: list[dict[str, Any]] = []
    end = 0
    while end + HEADER_SIZE <= len(data):
        header = read_header(data, end)
        if header.size < HEADER_SIZE or end + header.size > len(data):
            break
        payload = base64.b64encode(data[end + HEADER_SIZE : end + header.size]).decode()
        found.append({**header._asdict(), "payload": payload})
        end += header.size
    return {"batches": found, "partial": len(data) - end}


def differences(kafka: Any, moldau: Any, path: str = "") -> Iterator[Difference]:
    """Where two plain values differ, deepest first."""
    if isinstance(kafka, dict) and isinstance(moldau, dict):
        for key in kafka | moldau:
            inner = f"{path}.{key}" if path else str(key)
            if key not in moldau:
                yield Difference(inner, kafka[key], "(absent)")
            elif key not in kafka:
                yield Difference(inner, "(absent)", moldau[key])
            else:
                yield from differences(kafka[key], moldau[key], inner)
    elif isinstance(kafka, list) and isinstance(moldau, list):
        yield from _list_differences(kafka, moldau, path)
    elif kafka != moldau or type(kafka) is not type(moldau):
        yield Difference(path, kafka, moldau)


def _list_differences(kafka: list[Any], moldau: list[Any], path: str) -> Iterator[Difference]:
    """By name where the elements have names, so that another order is one difference, not many."""
    ours, theirs = _by_name(moldau), _by_name(kafka)
    if ours is not None and theirs is not None:
        if ours.keys() == theirs.keys() and list(ours) != list(theirs):
            yield Difference(f"{path} (order)", list(theirs), list(ours))
        for key in theirs | ours:
            one, other = (side.get(key, "(absent)") for side in (theirs, ours))
            yield from differences(one, other, f"{path}[{key}]")
    elif len(kafka) != len(moldau):
        yield Difference(path, kafka, moldau)
    else:
        for place, (one, other) in enumerate(zip(kafka, moldau, strict=True)):
            yield from differences(one, other, f"{path}[{place}]")


def _by_name(items: list[Any]) -> dict[str, Any] | None:
    """The elements by what identifies them; None where nothing does, or two have the same."""
    found = {}
    for item in items:
        if not isinstance(item, dict):
            return None
        names = [str(item[key]) for key in _NAMES if item.get(key) is not None]
        if not names:
            return None
        found[" ".join(names[:2])] = item
    return found if len(found) == len(items) else None


_NAMES = (
    *("name", "topic", "topic_id", "partition_index", "index", "partition", "partition_id"),
    *("group_id", "resource_name", "key", "member_id", "broker_id", "node_id", "api_key"),
)
