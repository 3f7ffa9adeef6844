"""The group of `moldau demo`: members as real processes, and waiting for what they do."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable

from moldau.cli.clients import connect_client_admin
from moldau.cli.views.output import Failure, show

STOP_WITHIN_S = 20.0
HAPPENS_WITHIN_S = 40.0
LOOK_EVERY_S = 0.05
# Short, so that the demo is soon over; brokers allow no less than 6 by default.
SESSION_TIMEOUT_S = 8

COLOURS = ("cyan", "magenta", "yellow")


class Member:
    """One `moldau consume --group` process; what it prints is shown with its name before it."""

    def __init__(self, name: str, colour: str, command: str, address: str) -> None:
        self.name = name
        self.is_dead = False
        self.read: set[int] = set()
        self.partitions: set[int] = set()
        self._colour = colour
        show(f"$ moldau {command} &", "green")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moldau", *shlex.split(command)],
            env=os.environ | {"MOLDAU_BOOTSTRAP": address},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._threads = [
            threading.Thread(target=self._show_orders, daemon=True),
            threading.Thread(target=self._follow_assignment, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _show_orders(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            show(f"  [{self.name}] {line.rstrip()}", self._colour)
            number = line.partition("order ")[2].partition(":")[0]
            self.read.add(int(number))

    def _follow_assignment(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            _, found, partitions = line.partition("this member reads partition")
            if found:
                self.partitions = {int(p) for p in partitions.lstrip("s").split(",")}

    def kill(self) -> None:
        show(f"$ kill -9 {self._process.pid}", "green")
        self.is_dead = True
        self.end(signal.SIGKILL)

    def end(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            self._process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(STOP_WITHIN_S)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


class Members:
    """The members of one group, which share the partitions of the topic `orders`."""

    def __init__(self, address: str, group: str, *, count: int, partitions: int) -> None:
        self._address = address
        self._group = group
        self._count = count
        self._partitions = set(range(partitions))
        self._members: list[Member] = []
        self._admin = connect_client_admin(address)

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *problem: object) -> None:
        for member in self._members:
            member.end(signal.SIGINT)

    def start(self) -> None:
        for number in range(1, self._count + 1):
            name = f"cook-{number}"
            command = (
                f"consume orders --group {self._group} --from-beginning --client-id {name}"
                f" --session-timeout {SESSION_TIMEOUT_S} --format '{{key}}, {{value}}'"
            )
            colour = COLOURS[number % len(COLOURS)]
            self._members.append(Member(name, colour, command, self._address))

    def next_to_die(self) -> tuple[str, str]:
        """Return who it is, and which partitions that one has."""
        victim = self._members[1]
        return victim.name, ", ".join(map(str, sorted(victim.partitions)))

    def kill_one(self) -> None:
        self._members[1].kill()

    def wait_until_shared(self) -> None:
        def is_shared() -> bool:
            owned = [p for member in self._living for p in member.partitions]
            everyone = all(member.partitions for member in self._living)
            return everyone and sorted(owned) == sorted(self._partitions)

        self._wait(is_shared, "the partitions were not shared out")

    def wait_for(self, numbers: Iterable[int], *, only_of_the_living: bool = False) -> None:
        """Wait until these orders are read, except those of a dead member."""
        wanted = set(numbers)

        def are_read() -> bool:
            missing = wanted - {number for member in self._members for number in member.read}
            return not missing or (only_of_the_living and len(missing) <= self._waiting())

        self._wait(are_read, "the orders were not read")

    def wait_for_commits(self) -> None:
        """Wait until what was read is committed, so that the lag shown is the real one."""
        self._wait(lambda: self._uncommitted() == 0, "the offsets were not committed")

    @property
    def _living(self) -> list[Member]:
        return [member for member in self._members if not member.is_dead]

    def _in_dead_hands(self, partition: int) -> bool:
        return all(partition not in member.partitions for member in self._living)

    def _waiting(self) -> int:
        """Return how many messages wait for a dead member."""
        return self._left(self._in_dead_hands)

    def _uncommitted(self) -> int:
        """Return how many messages the living have not committed."""
        return self._left(lambda partition: not self._in_dead_hands(partition))

    def _left(self, counts: Callable[[int], bool]) -> int:
        partitions = self._admin.lag(self._group)
        return sum(p.end - (p.committed or 0) for p in partitions if counts(p.partition))

    def _wait(self, is_true: Callable[[], bool], problem: str) -> None:
        deadline = time.monotonic() + HAPPENS_WITHIN_S
        while not is_true():
            if time.monotonic() > deadline:
                raise Failure(f"{problem} within {HAPPENS_WITHIN_S:g} s")
            time.sleep(LOOK_EVERY_S)
