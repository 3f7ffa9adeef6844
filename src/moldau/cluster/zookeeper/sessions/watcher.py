"""Watchers: what kazoo calls from its threads when a node changes, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kazoo.protocol.states import EventType

Watch = Callable[[], None]


class Watcher:
    """Passes one event on to the loop. Equal for equal targets, so kazoo keeps it once."""

    __slots__ = ("_post", "_watch")

    def __init__(self, post: Callable[..., None], watch: Watch) -> None:
        self._post = post
        self._watch = watch

    def __call__(self, event: Any) -> None:
        # kazoo also calls when the connection is lost; then everything is read anew anyway.
        if event.type != EventType.NONE:
            self._post(self._watch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Watcher) and self._watch == other._watch

    def __hash__(self) -> int:
        return hash(self._watch)
