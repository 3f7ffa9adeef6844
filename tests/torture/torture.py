"""Kills a broker again and again and holds it to its promises.

Messages are produced with acks=all under flush policies while the broker is killed at random
moments. Whatever was neither acknowledged nor shown to a reader is then lost, torn or flipped, as
by a power failure; indexes, snapshots and leftovers of interrupted changes are damaged too. After
every start everything must go on as if nothing had been: each message once, in order, its bytes
unchanged, and none that a reader saw may ever vanish.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.torture.clients import PATIENCE_S, Sender, Watcher, read_newest, wait_until
from tests.torture.messages import Ledger, TopicPartition, Wrong
from tests.torture.vandal import Vandal

SETTINGS = (
    "log.cleaner.backoff.ms=30",
    "log.flush.offset.checkpoint.interval.ms=150",
    "log.retention.ms=-1",
    "log.retention.check.interval.ms=200",
)
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "each": (2, {"flush.messages": "1", "segment.bytes": "60000", "index.interval.bytes": "500"}),
    "some": (1, {"flush.messages": "40", "flush.ms": "15", "segment.bytes": "20000"}),
    "keyed": (
        1,
        {
            "flush.messages": "1",
            "cleanup.policy": "compact",
            "segment.bytes": "20000",
            "min.cleanable.dirty.ratio": "0.1",
        },
    ),
}
COMPACTED = TopicPartition("keyed", 0)
_KEYS = 40
_MOST_WAITING = 2000
_READY = re.compile(r"moldau broker \d+ ready on (127\.0\.0\.1:\d+)\n")


class Torture:
    """One run on one data folder."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self._folder = folder / "data"
        self._log = folder / "broker.log"
        self._dice = random.Random(seed)
        self._say = say
        self._vandal = Vandal(self._folder, self._dice)
        self._ledgers = {
            place: Ledger(place)
            for topic, (partitions, _) in TOPICS.items()
            for place in (TopicPartition(topic, number) for number in range(partitions))
        }
        self._plain = [ledger for place, ledger in self._ledgers.items() if place != COMPACTED]
        self._address = "127.0.0.1:0"
        self.cycles = 0
        self._process = self._start()

    def run(self, is_over: Callable[[int], bool]) -> None:
        """Cycles until `is_over`, which is told how many there were; Wrong if a promise breaks."""
        self._create_topics()
        sender = Sender(self._address, self._ledgers)
        watcher = Watcher(self._address, self._plain)
        try:
            while not is_over(self.cycles):
                self._produce(sender, watcher)
                self._end(sender, watcher)
                self._process = self._start()
                self.cycles += 1
                if self.cycles % 10 == 0:
                    self._verify(sender, watcher)
            self._verify(sender, watcher)
        finally:
            watcher.close()

    @property
    def summary(self) -> str:
        sent = sum(ledger.sent for ledger in self._ledgers.values())
        deeds = len(self._vandal.deeds)
        return f"{self.cycles} cycles, {sent} messages, {deeds} acts of damage"

    @property
    def last_deeds(self) -> list[str]:
        return self._vandal.deeds[-12:]

    @property
    def broker_log(self) -> str:
        return self._log.read_text(errors="replace")

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE_S)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _start(self) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "moldau", "broker", "--listen", self._address]
        words += ["--data-dir", str(self._folder)]
        for setting in SETTINGS:
            words += ["--set", setting]
        with self._log.open("ab") as log:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        ready = _READY.fullmatch(process.stdout.readline())
        if ready is None:
            process.kill()
            raise Wrong(f"the broker does not start:\n{self.broker_log[-3000:]}")
        self._address = ready[1]
        return process

    def _create_topics(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self._address, "log_level": 0})
        wanted = [NewTopic(name, count, config=config) for name, (count, config) in TOPICS.items()]
        for outcome in admin.create_topics(wanted).values():
            outcome.result(PATIENCE_S)

    def _produce(self, sender: Sender, watcher: Watcher) -> None:
        """Sends and reads for a random while."""
        until = time.monotonic() + self._dice.uniform(0.02, 0.7)
        while time.monotonic() < until:
            if sender.waiting < _MOST_WAITING:
                for _ in range(self._dice.randrange(1, 40)):
                    place = self._dice.choice(list(self._ledgers))
                    key = b"key %d" % self._dice.randrange(_KEYS) if place == COMPACTED else None
                    sender.send(place, key)
            sender.poll(0.002)
            watcher.poll()

    def _end(self, sender: Sender, watcher: Watcher) -> None:
        """Kills the broker, waits until all that it said is known, and does damage."""
        sender.expect_an_end()
        watcher.expect_an_end()
        is_clean = self._dice.random() < 0.1
        self._process.send_signal(signal.SIGTERM if is_clean else signal.SIGKILL)
        self.close()
        sender.notice_the_end()
        watcher.notice_the_end()
        if is_clean:
            return
        for ledger in self._ledgers.values():
            self._vandal.strike(ledger)
        self._vandal.strike_checkpoints()

    def _verify(self, sender: Sender, watcher: Watcher) -> None:
        """Everything sent is acknowledged, seen once and in order, and there to be read again."""
        sender.finish()
        wait_until(
            lambda: all(ledger.seen == ledger.sent for ledger in self._plain),
            "the reader saw everything",
            lambda: watcher.poll(0.05),
        )
        for place, ledger in self._ledgers.items():
            if ledger.acknowledged != ledger.sent:
                raise Wrong(f"{place}: {ledger.acknowledged} of {ledger.sent} acknowledged")
        newest = read_newest(self._address, COMPACTED)
        expected = self._ledgers[COMPACTED].newest
        if newest != expected:
            odd = {key: (newest.get(key), expected.get(key)) for key in newest.keys() | expected}
            odd = {key: pair for key, pair in odd.items() if pair[0] != pair[1]}
            raise Wrong(f"{COMPACTED}: newest values (found, sent): {odd}")
        for ledger in self._plain:
            again = Watcher(self._address, [fresh := Ledger(ledger.place)])
            try:
                wait_until(
                    lambda fresh=fresh, ledger=ledger: fresh.seen >= ledger.sent,  # type: ignore[misc]
                    f"{ledger.place} can be read from the beginning",
                    lambda again=again: again.poll(0.05),  # type: ignore[misc]
                )
            finally:
                again.close()
        self._say(self.summary)
