"""Random histories of requests to ZooKeeper, the same for the real one and for the simulated one.

A history is a list of steps of two clients: transactions with all kinds of operations, right and
wrong versions, reads that watch, ends of sessions, and connections that break, for a moment or
until the session has expired. `Words.answer` makes answers comparable: transaction ids and sessions
become numbers in the order in which they were met.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from moldau.cluster.zookeeper.sessions.operations import Check, Create, Delete, Operation, SetData

CLIENTS = 2
NO_WATCH = -1
_PATHS = ("/a", "/b", "/a/x", "/a/x", "/a/y", "/b/x", "/a/x/deep")


class Multi(NamedTuple):
    """A transaction."""

    client: int
    operations: tuple[Operation, ...]


class Read(NamedTuple):
    """A read; `watch` is a number of its own if it watches, else NO_WATCH."""

    client: int
    kind: str
    path: str
    watch: int


class End(NamedTuple):
    """The client ends its session and begins another."""

    client: int


class Break(NamedTuple):
    """The client's connection breaks, and others do something before it is back.

    The session outlives that, or it has expired by then.
    """

    client: int
    meanwhile: tuple[Multi | Read, ...]
    expires: bool


Step = Multi | Read | End | Break


def history(seed: int, length: int = 60, expiries: int = 0) -> list[Step]:
    """The history of a seed, in which so many sessions expire."""
    dice = random.Random(f"zookeeper {seed}")
    steps: list[Step] = [Multi(0, tuple(Create(path) for path in ("/a", "/b", "/a/x")))]
    expire_at = {length * (each + 1) // (expiries + 1) for each in range(expiries)}
    for number in range(length):
        client = dice.randrange(CLIENTS)
        choice = dice.random()
        if number in expire_at or 0.03 <= choice < 0.06:
            other = (client + 1) % CLIENTS
            count = dice.randrange(4)
            # Watches have numbers of their own.
            numbers = range(length * (number + 1), length * (number + 1) + count)
            meanwhile = tuple(_request(dice, other, each) for each in numbers)
            if number in expire_at:
                # It would prove little if the session had nothing that goes with it.
                steps.append(Multi(client, (Create("/a/y", ephemeral=True),)))
                steps.append(Read(other, "exists", "/a/y", length * (number + 1) + count))
            steps.append(Break(client, meanwhile, number in expire_at))
        elif choice < 0.03:
            steps.append(End(client))
        else:
            steps.append(_request(dice, client, number))
    return steps


def _request(dice: random.Random, client: int, number: int) -> Multi | Read:
    if dice.random() < 0.5:
        kind = dice.choice(["get", "exists", "children"])
        watch = number if dice.random() < 0.7 else NO_WATCH
        return Read(client, kind, dice.choice(_PATHS), watch)
    count = dice.choice([1, 1, 1, 1, 2, 3])
    return Multi(client, tuple(_operation(dice) for _ in range(count)))


def _operation(dice: random.Random) -> Operation:
    path = dice.choice(_PATHS)
    version = dice.choice([-1, -1, -1, 0, 0, 1, 2])
    data = b"%d" % dice.randrange(1000)
    choice = dice.random()
    if choice < 0.45:
        return Create(path, data, dice.random() < 0.25, dice.random() < 0.2)
    if choice < 0.65:
        return SetData(path, data, version)
    if choice < 0.85:
        return Delete(path, version)
    return Check(path, version)


class Words:
    """Answers of one ensemble, as values that those of another can be compared with."""

    def __init__(self, chroot: str) -> None:
        self._chroot = chroot
        self._sessions: dict[int, int] = {0: 0}
        self._changes: dict[int, int] = {}

    def answer(self, answer: Any, sessions: Sequence[int]) -> Any:
        """`sessions` are those of the clients at the moment."""
        for id in sessions:
            self._sessions.setdefault(id, len(self._sessions))
        match answer:
            case Exception():
                return type(answer).__name__
            case str():
                return answer.removeprefix(self._chroot)
            case list():
                return [self.answer(each, sessions) for each in answer]
            case (bytes() as data, stat):
                return data, self._stat(stat)
            case None | bool():
                return answer
            case _:
                return self._stat(answer)

    def _stat(self, stat: Any) -> tuple[int, ...]:
        return (
            stat.version,
            self._sessions[stat.ephemeralOwner],
            self._changes.setdefault(stat.czxid, len(self._changes)),
            self._changes.setdefault(stat.mzxid, len(self._changes)),
        )
