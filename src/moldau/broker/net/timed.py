"""The time that work takes of the loop, step by step: while it waits, the loop is others'."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from time import monotonic
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


@coroutine
def timed(work: Awaitable[T], note: Callable[[float, float], None]) -> Generator[Any, Any, T]:
    """Do `work`, and tell `note` when each of its steps began and ended, by `time.monotonic`."""
    steps: Any = work.__await__()
    sent: Any = None
    problem: BaseException | None = None
    while True:
        began = monotonic()
        try:
            awaited = steps.send(sent) if problem is None else steps.throw(problem)
        except StopIteration as end:
            found: T = end.value
            return found
        finally:
            note(began, monotonic())
        sent = problem = None
        try:
            sent = yield awaited
        except BaseException as error:
            problem = error
