"""Rounds of a torture: deeds in any order, each of which must hit somebody."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from moldau.testing import Cluster
from tests.torture.messages import Wrong

Deed = Callable[[], None]

SETTINGS = {
    "zookeeper.session.timeout.ms": "4000",
    "auto.create.topics.enable": "false",
    "transaction.state.log.num.partitions": "5",
}


class Rounds:
    """One run over a cluster of brokers, in one folder. `hits` says who was hit, and how often."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._dice = random.Random(seed)
        self._say = say
        self._started = time.monotonic()
        # What ends before the brokers do.
        self._stack = ExitStack()
        self.hits: Counter[str] = Counter()
        self.deeds: list[str] = []
        self.rounds = 0

    @property
    def summary(self) -> str:
        hits = ", ".join(f"{count} {what}" for what, count in sorted(self.hits.items()))
        return f"{self.rounds} rounds, {self._figures()}; hit: {hits or 'nobody'}"

    @property
    def last_deeds(self) -> list[str]:
        return self.deeds[-20:]

    def run(self, is_over: Callable[[int], bool]) -> None:
        """Rounds until `is_over`, which is told how many there were; Wrong if a row is wrong."""
        with (
            Cluster(3, settings=SETTINGS, folder=self._folder / "cluster") as cluster,
            self._stack,
        ):
            self._cluster = cluster
            self._begin()
            try:
                hand: list[Deed] = []
                while not is_over(self.rounds):
                    if not hand:
                        hand = self._hand()
                        self._dice.shuffle(hand)
                    before = self.hits.total()
                    hand.pop()()
                    assert self.hits.total() > before, f"nobody was hit: {self.deeds[-1]}"
                    self.rounds += 1
                    if not hand:
                        self._check()
                if hand:
                    self._check()
            except AssertionError as problem:
                raise Wrong(f"{problem}\n{cluster.logs()}") from problem

    def close(self) -> None:
        """Nothing is left: everything ends with `run`."""

    def _begin(self) -> None:
        raise NotImplementedError

    def _hand(self) -> list[Deed]:
        """Everything that may happen before the next check."""
        raise NotImplementedError

    def _check(self) -> None:
        """Wrong if what was promised is not so."""
        raise NotImplementedError

    def _figures(self) -> str:
        raise NotImplementedError

    def _do(self, deed: str) -> None:
        moment = time.monotonic() - self._started
        self.deeds.append(f"{time.strftime('%H:%M:%S')} {moment:7.2f} s  {deed}")
        self._say(self.deeds[-1])
