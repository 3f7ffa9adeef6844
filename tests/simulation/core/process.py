"""Processes and machines of a simulated cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.core.loop import Step

# The time of day at which every simulation begins: 2026-01-01 00:00:00 UTC.
EPOCH_S = 1_767_225_600.0


class ProcessDied(BaseException):
    """A process ends in the middle of what it does; nothing that it does afterwards counts."""


class Machine:
    """One computer: an address, a clock, and the boots that it has had.

    `skew_s` is how wrong its time of day is. `is_on` is false from a power failure to the next
    boot: then nobody answers there, not even to refuse a connection.
    """

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.skew_s = 0.0
        self.is_on = True
        self.boots = 1

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"

    def __repr__(self) -> str:
        return self.name


class Process:
    """One life of a program on a machine: what it still has to do, and whether it may.

    `ready` holds its steps in the order in which they became due, as an event loop runs them. A
    frozen process (`frozen_until`) does nothing, while its sockets fill and its timers pass: when
    it goes on, it comes to what it has received first, as asyncio's loop does, and then to its
    timers. A dead one never does anything again; `belongings` keeps its objects, so that no
    destructor runs code that a dead process would not have run.
    """

    def __init__(self, name: str, machine: Machine) -> None:
        self.name = name
        self.machine = machine
        self.is_alive = True
        self.frozen_until = 0.0
        self.ready: deque[Step] = deque()
        # Timers that were due while it was frozen.
        self.overdue: list[Step] = []
        self.belongings: list[Any] = []
        # Called after each of its steps.
        self.after_step: Callable[[Process], None] | None = None
        # The disk operations that it may still do before it dies in the midst of one; -1: any.
        self.operations_left = -1
        # The schemas of messages that it has loaded, by API and version.
        self.schemas: set[tuple[int, int]] = set()

    def __repr__(self) -> str:
        return self.name
