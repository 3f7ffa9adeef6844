"""Shown bytes: a key, a value or a header as JSON, as text, or in hexadecimal digits."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from moldau.console.values.masks import HIDDEN, Masks, TopicMasks
from moldau.console.values.registered import RegisteredValues, Unreadable
from moldau.records.record import Record
from moldau.schemas.header import KEY_HEADER, VALUE_HEADER, name_in

# What is shown of each part of a message in lists. More is a question about a single message.
SHOWN_BYTES = 16 << 10
# Browsers read numbers as doubles: longer ones are given as text, too.
_LONG_NUMBER = re.compile(rb"[0-9]{16}")
# Bytes that no text has.
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Bytes(msgspec.Struct, omit_defaults=True):
    """One of `json`, `text` and `hex`, and how the bytes are encoded.

    `text` comes with `json` where numbers have more digits than browsers read. If it is
    `truncated`, less is shown than the `bytes` that there are. `problem` says why a value could not
    be read by the schema that it names.
    """

    encoding: str
    bytes: int
    json: Any = UNSET
    text: str | UnsetType = UNSET
    hex: str | UnsetType = UNSET
    schema_id: int | UnsetType = UNSET
    truncated: bool = False
    problem: str | UnsetType = UNSET


class Message(msgspec.Struct):
    """A message as the page shows it."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: Bytes | None
    value: Bytes | None
    headers: list[tuple[str, Bytes | None]]
    size: int


class Shower:
    """Shows the messages of one topic. For one thread."""

    def __init__(
        self,
        topic: str,
        registered: RegisteredValues | None,
        masks: Masks,
        *,
        decodes: bool = True,
        most_bytes: int = SHOWN_BYTES,
    ) -> None:
        self.topic = topic
        self._registered = registered
        self._masks = masks
        self._decodes = decodes
        self._most = most_bytes

    def message(self, partition: int, record: Record, uses_append_time: bool) -> Message:
        key = None if record.key is None else bytes(record.key)
        value = None if record.value is None else bytes(record.value)
        headers = [(name, None if each is None else bytes(each)) for name, each in record.headers]
        size = len(key or b"") + len(value or b"")
        size += sum(len(name) + len(each or b"") for name, each in headers)
        masks = self._masks.of_record(self.topic, headers)
        return Message(
            partition,
            record.offset,
            record.timestamp,
            "append" if uses_append_time else "create",
            self._part(key, name_in(headers, KEY_HEADER), TopicMasks(value=masks.key)),
            self._part(value, name_in(headers, VALUE_HEADER), masks),
            [(name, self._header(name, each, masks)) for name, each in headers],
            size,
        )

    def _header(self, name: str, value: bytes | None, masks: TopicMasks) -> Bytes | None:
        if value is not None and name in masks.headers:
            return Bytes("text", len(value), text=HIDDEN)
        return None if value is None else plain(value, self._most)

    def _part(self, data: bytes | None, named: bytes | None, masks: TopicMasks) -> Bytes | None:
        if data is None:
            return None
        if masks.value:
            return Bytes("text", len(data), text=HIDDEN)
        if not self._decodes:
            return _hidden_or(data, masks, self._most)
        problem: str | UnsetType = UNSET
        if self._registered is not None:
            try:
                found = self._registered.read(data, named)
            except Unreadable as why:
                problem = str(why)
            else:
                if found is not None:
                    value = masks.hide(found.value) if masks.fields else found.value
                    shown = Bytes(found.encoding, len(data), json=value, schema_id=found.schema_id)
                    return self._cut(shown)
        value = as_json(data)
        if value is UNSET:
            shown = _hidden_or(data, masks, self._most)
        elif masks.fields:
            shown = self._cut(Bytes("json", len(data), json=masks.hide(value)))
        elif len(data) > self._most:
            shown = plain(data, self._most, "json")
        else:
            shown = Bytes("json", len(data), json=msgspec.Raw(data))
            if _LONG_NUMBER.search(data):
                shown.text = data.decode()
        shown.problem = problem
        return shown

    def _cut(self, shown: Bytes) -> Bytes:
        """Show a decoded value as text where it is too long to show it all."""
        text = msgspec.json.encode(shown.json)
        if len(text) > self._most:
            shown.json, shown.truncated = UNSET, True
            shown.text = text[: self._most].decode("utf-8", "ignore")
        elif _LONG_NUMBER.search(text):
            shown.text = text.decode()
        return shown


def _hidden_or(data: bytes, masks: TopicMasks, most: int) -> Bytes:
    """Hide bytes without fields where some field is to be hidden: it may be in there."""
    return Bytes("text", len(data), text=HIDDEN) if masks.fields else plain(data, most)


def as_json(data: bytes) -> Any:
    """Return the object or array that the bytes are in JSON; UNSET if they are none."""
    if data[:1] not in b"{[ \t\r\n" or not data:
        return UNSET
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return UNSET
    return value if isinstance(value, dict | list) else UNSET


def plain(data: bytes, most: int = SHOWN_BYTES, encoding: str = "") -> Bytes:
    """Show bytes as text, or in hexadecimal digits where they are none."""
    cut = data[:most]
    is_cut = len(data) > most
    if not _CONTROL.search(cut):
        try:
            text = cut.decode("utf-8", "ignore" if is_cut else "strict")
            if not is_cut or len(text.encode()) > len(cut) - 4:
                return Bytes(encoding or "text", len(data), text=text, truncated=is_cut)
        except UnicodeDecodeError:
            pass
    return Bytes("hex", len(data), hex=cut.hex(), truncated=is_cut)
