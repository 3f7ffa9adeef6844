"""Handles that temporarily replace a producer's librdkafka handle."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NoReturn


class Turning:
    """While the handle is exchanged for another: makes senders wait for the new one."""

    def __init__(self, turning: AbstractContextManager[object], current: Callable[[], Any]) -> None:
        self._turning = turning
        self._current = current

    def produce(self, *arguments: Any) -> None:
        with self._turning:
            handle = self._current()
        handle.produce(*arguments)


class Closed:
    """Once the producer is closed."""

    def produce(self, *arguments: Any) -> NoReturn:
        raise RuntimeError("the producer is closed")

    def list_topics(self, *arguments: Any, **more: Any) -> NoReturn:
        raise RuntimeError("the producer is closed")

    def poll(self, timeout: float) -> int:
        return 0

    def flush(self, timeout: float) -> int:
        return 0

    def purge(self) -> None:
        return None

    def __len__(self) -> int:
        return 0
