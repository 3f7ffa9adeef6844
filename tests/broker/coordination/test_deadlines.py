"""Deadlines by a loop whose clock is turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from moldau.broker.coordination.deadlines import NEVER, Deadlines


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Clock:
    """As much of an event loop as deadlines need."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.seconds

    def call_at(self, at: float, call: Callable[[], None]) -> Any:
        self.timers.append(Timer(at, call))
        return self.timers[-1]

    @property
    def waiting(self) -> list[Timer]:
        return [timer for timer in self.timers if not timer.is_cancelled]

    def turn_to(self, seconds: float) -> None:
        """Timers fire when they are due, each at its time."""
        while due := [timer for timer in self.waiting if timer.at <= seconds]:
            timer = min(due, key=lambda each: each.at)
            self.timers.remove(timer)
            self.seconds = max(self.seconds, timer.at)
            timer.call()
        self.seconds = seconds

    def stall_until(self, seconds: float) -> None:
        """Nothing happens for a while, and then everything at once."""
        self.seconds = seconds
        self.turn_to(seconds)


class Item:
    def __init__(self) -> None:
        self.armed_at = NEVER


def deadlines(clock: Clock, called: list[Item]) -> Deadlines[Item]:
    return Deadlines(cast(asyncio.AbstractEventLoop, clock), called.append)


def test_each_is_called_once_at_its_time_by_a_single_timer() -> None:
    clock, called = Clock(), list[Item]()
    waiting = deadlines(clock, called)
    items = [Item() for _ in range(100)]
    for place, item in enumerate(items):
        waiting.arm(item, 100_000 + 100 * (100 - place))
        assert len(clock.waiting) == 1
    clock.turn_to(105.05)
    assert called == items[:49:-1]
    clock.turn_to(120)
    assert called == items[::-1]
    assert clock.waiting == []


def test_only_an_earlier_deadline_replaces_one() -> None:
    clock, called = Clock(), list[Item]()
    waiting = deadlines(clock, called)
    item = Item()
    waiting.arm(item, 105_000)
    waiting.arm(item, 109_000)
    waiting.arm(item, 103_000)
    clock.turn_to(104)
    assert called == [item]
    waiting.arm(item, 108_000)
    clock.turn_to(107)
    assert called == [item]
    clock.turn_to(109)
    assert called == [item, item]


def test_after_a_stall_what_arrived_meanwhile_is_heard_first() -> None:
    clock, called = Clock(), list[Item]()
    waiting = deadlines(clock, called)
    item = Item()
    waiting.arm(item, 101_000)
    clock.stall_until(110)
    assert called == []
    clock.turn_to(111.5)
    assert called == [item]


def test_nothing_is_called_after_the_end() -> None:
    clock, called = Clock(), list[Item]()
    waiting = deadlines(clock, called)
    waiting.arm(Item(), 101_000)
    waiting.stop()
    clock.turn_to(200)
    assert called == []
