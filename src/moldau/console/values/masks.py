"""Masks: fields of messages that the console shows to nobody.

    TOPIC:FIELD      a field of the value, nested ones with dots: customers:card.number
    TOPIC:@key       the whole key
    TOPIC:@value     the whole value
    TOPIC:@NAME      the header of this name, where it is neither of these

In the topic, * stands for any number of characters. A dead letter is hidden as the records of the
topic that it came from are, besides, and so is its reason if anything of key or value is.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from moldau.client.pipelines.letters import ORIGIN_TOPIC, REASON
from moldau.client.queue.redrive import PREFIX

# Headers that name the topic of a dead letter's origin.
ORIGINS = frozenset((ORIGIN_TOPIC, f"{PREFIX}topic"))
# Headers that say why a record is a dead letter, and may quote its key and value.
REASONS = frozenset((REASON, f"{PREFIX}message"))
HIDDEN = "***"
KEY, VALUE = "@key", "@value"


@dataclass(frozen=True, slots=True)
class Mask:
    """One field of the topics that a pattern names."""

    topics: str
    field: str

    @classmethod
    def parse(cls, text: str) -> Mask:
        """ValueError says what is expected."""
        topics, colon, field = text.partition(":")
        if not colon or not topics or not field.strip("@."):
            raise ValueError(f"{text!r} is not TOPIC:FIELD, such as customers:card.number")
        return cls(topics, field)

    def is_for(self, topic: str) -> bool:
        return fnmatch.fnmatchcase(topic, self.topics)


class Masks:
    """All masks of a console."""

    def __init__(self, masks: Iterable[Mask]) -> None:
        self._masks = tuple(masks)

    def __bool__(self) -> bool:
        return bool(self._masks)

    def of(self, topic: str) -> TopicMasks:
        return _of(self._masks, topic)

    def of_record(self, topic: str, headers: Iterable[tuple[str, Any]]) -> TopicMasks:
        """Return what is hidden of a record, also because of the topic that it came from."""
        masks = self.of(topic)
        if not self._masks:
            return masks
        is_letter = False
        for name, value in headers:
            if name in ORIGINS and value is not None:
                is_letter = True
                masks |= self.of(bytes(value).decode(errors="replace"))
        if is_letter and masks.hides_content:
            masks |= TopicMasks(headers=REASONS)
        return masks

    def reason(self, topic: str, origin: str, reason: str) -> str:
        """Return the reason of a letter in a topic, as far as it is shown."""
        hidden = self._masks and (self.of(topic) | self.of(origin)).hides_content
        return HIDDEN if hidden else reason


@dataclass(frozen=True, slots=True)
class TopicMasks:
    """What is hidden of one topic's messages."""

    key: bool = False
    value: bool = False
    headers: frozenset[str] = frozenset()
    fields: tuple[tuple[str, ...], ...] = ()

    def __or__(self, other: TopicMasks) -> TopicMasks:
        return TopicMasks(
            self.key or other.key,
            self.value or other.value,
            self.headers | other.headers,
            tuple(dict.fromkeys(self.fields + other.fields)),
        )

    def __bool__(self) -> bool:
        return bool(self.key or self.value or self.headers or self.fields)

    @property
    def hides_content(self) -> bool:
        """Whether anything of key or value is hidden."""
        return self.key or self.value or bool(self.fields)

    def hide(self, value: Any) -> Any:
        """Return a decoded value without what is hidden; all of it if it has no fields."""
        if self.value:
            return HIDDEN
        if not self.fields or value is None:
            return value
        if not isinstance(value, dict | list):
            return HIDDEN
        for path in self.fields:
            value = _hidden(value, path)
        return value


@lru_cache(256)
def _of(masks: tuple[Mask, ...], topic: str) -> TopicMasks:
    names = [mask.field for mask in masks if mask.is_for(topic)]
    return TopicMasks(
        KEY in names,
        VALUE in names,
        frozenset(name[1:] for name in names if name.startswith("@") and name not in (KEY, VALUE)),
        tuple(tuple(name.split(".")) for name in names if not name.startswith("@")),
    )


def _hidden(value: Any, path: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_hidden(each, path) for each in value]
    if not isinstance(value, dict) or path[0] not in value:
        return value
    inner = value[path[0]]
    rest = path[1:]
    return {**value, path[0]: _hidden(inner, rest) if rest and inner is not None else HIDDEN}
