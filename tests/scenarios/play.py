"""A play: a cluster, a topic, clients that work on it all the time, and the ledger of it all."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

from moldau.testing import Cluster
from tests.scenarios.clients import PATIENCE_S, Background, Member, Reader, Writer, read_all
from tests.scenarios.earlier import ITS_FAULT
from tests.scenarios.ledger import Ledger, TopicPartition, Wrong

TOPIC = "orders"


class Play:
    """Writers and readers on one topic, from the beginning of the block to its end.

    `go_on` returns when work has gone on in every partition since it was called. At the end of a
    block in which nothing went wrong the writers finish, and everything that is in the topic is
    read and compared with the ledger.
    """

    def __init__(
        self,
        cluster: Cluster,
        partitions: int = 3,
        writers: int = 1,
        group: str | None = None,
        protocol: str = "classic",
        topic: str = TOPIC,
        **configs: str | int | bool,
    ) -> None:
        self.cluster = cluster
        self.ledger = Ledger()
        configs = {"min_insync_replicas": 2, **configs}
        cluster.create_topic(topic, partitions, -1, **configs)
        self.places = [TopicPartition(topic, index) for index in range(partitions)]
        bootstrap = cluster.bootstrap
        self.writers = [
            Writer(bootstrap, self.ledger, self.places, number) for number in range(writers)
        ]
        self.readers = [Reader(bootstrap, self.ledger, self.places)]
        self.members = (
            []
            if group is None
            else [Member(bootstrap, self.ledger, topic, group, protocol) for _ in "ab"]
        )
        self._clients: list[Background] = [*self.readers, *self.members, *self.writers]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for client in self._clients:
            self._stack.enter_context(client)
        return self

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> None:
        if kind is None:
            self.finish()
        else:
            for client in self._clients:
                client.abandon()
            self._stack.close()

    def go_on(self, messages: int = 20, within_s: float = PATIENCE_S) -> None:
        """Return when every partition has had so many more messages acknowledged and read."""
        start = {place: self.ledger.acknowledged(place) for place in self.places}
        self._wait(
            lambda: all(
                self.ledger.acknowledged(place) >= start[place] + messages for place in self.places
            ),
            f"{messages} more messages acknowledged in each partition",
            within_s,
        )
        ends = {place: self.ledger.end_of_acknowledged(place) for place in self.places}
        self._wait_until_read(ends, within_s)

    def pause(self) -> None:
        """Let the writers send nothing more until `resume`."""
        for writer in self.writers:
            writer.pause()

    def resume(self) -> None:
        for writer in self.writers:
            writer.resume()

    def expect_standstill(self, quiet_s: float = 1.0) -> None:
        """Return when nothing has been acknowledged anywhere for a while."""
        deadline = time.monotonic() + PATIENCE_S
        count, since = -1, time.monotonic()
        while time.monotonic() - since < quiet_s:
            now = sum(map(self.ledger.acknowledged, self.places))
            if now != count:
                count, since = now, time.monotonic()
            if since > deadline:
                raise Wrong(f"after {PATIENCE_S:g} s messages are still acknowledged")
            time.sleep(0.02)
        self.ledger.check()

    def finish(self) -> None:
        """Let the clients finish, and compare everything that is there with the ledger."""
        with self._stack:
            for writer in self.writers:
                writer.__exit__(None, None, None)
            ends = {place: self.ledger.end_of_acknowledged(place) for place in self.places}
            self._wait_until_read(ends)
            for place in self.places:
                self.ledger.check_all(place, read_all(self.cluster.bootstrap, place, ends[place]))
            self._check_group(ends)
            self._wait(self._are_copies_equal, "all brokers hold the same bytes")
        check_logs(self.cluster)
        self.ledger.check()

    def _check_group(self, ends: dict[TopicPartition, int]) -> None:
        """Between them the members must have been given every message."""
        if not self.members:
            return
        wanted = {(place, offset) for place, end in ends.items() for offset in range(end)}
        self._wait(
            lambda: wanted <= set().union(*(member.taken.copy() for member in self.members)),
            "the group has read everything",
        )

    def _are_copies_equal(self) -> bool:
        """Whether the running brokers' copies of each partition are the same, byte for byte."""
        for topic, index in self.places:
            copies = set()
            for broker in self.cluster.running:
                folder = self.cluster.data_dir(broker) / f"{topic}-{index}"
                if folder.exists():
                    digest = hashlib.sha1(usedforsecurity=False)
                    for segment in sorted(folder.glob("*.log")):
                        digest.update(segment.read_bytes())
                    copies.add(digest.digest())
            if len(copies) != 1:
                return False
        return True

    def _wait_until_read(
        self, ends: dict[TopicPartition, int], within_s: float = PATIENCE_S
    ) -> None:
        try:
            self._wait(
                lambda: all(self.ledger.end_of_seen(place) >= ends[place] for place in self.places),
                "what was acknowledged is read",
                within_s,
            )
        except Wrong as problem:
            raise Wrong(f"{problem} ({self._unread(ends)})") from problem

    def _unread(self, ends: dict[TopicPartition, int]) -> str:
        """Say what was not read, and whether a new reader can: it tells a stuck client apart."""
        said = []
        for place, end in ends.items():
            seen = self.ledger.end_of_seen(place)
            if seen < end:
                try:
                    read_all(self.cluster.bootstrap, place, end)
                    said.append(f"{place} read to {seen} of {end}, by a new reader to its end")
                except Wrong as problem:
                    said.append(
                        f"{place} read to {seen} of {end}, by a new reader neither: {problem}"
                    )
        return "; ".join(said)

    def _wait(self, is_so: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + within_s
        while not is_so():
            self.ledger.check()
            if time.monotonic() > deadline:
                raise Wrong(f"after {within_s:g} s still not: {what}")
            time.sleep(0.02)
        self.ledger.check()


def check_logs(cluster: Cluster) -> None:
    """Wrong if a broker says that something committed was lost, or fails as nobody foresaw."""
    for broker in cluster.brokers:
        text = cluster.log(broker).read_text("utf-8", "replace").replace(ITS_FAULT, "")
        for sign in ("committed records are lost", "Traceback"):
            if sign in text:
                at = text.index(sign)
                raise Wrong(f"broker {broker} logged: {text[max(0, at - 300) : at + 3000]}")
