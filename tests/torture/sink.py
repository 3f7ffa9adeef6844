"""Breaks drivers, workers and brokers below the Spark sink, and counts every row.

Numbers go to a topic; a pipeline, or a stream, copies them to another one exactly once. In every
round something happens to it: the driver is killed with kill -9 at a point of a commit or at any
moment, its Python workers are, executors of a Spark cluster are, a broker is, or the driver is
frozen until another one has done its work. The next round goes on from the same checkpoint. In the
end a consumer that has nothing to do with the sink reads what is committed: every number must be
there once, and every record that did not parse must be one dead letter.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from confluent_kafka import Producer

from moldau.testing import Cluster
from tests.spark.drivers import DRIVER_WITHIN_S, Driver
from tests.spark.standalone import StandaloneSpark
from tests.spark.topics import read_by_librdkafka
from tests.torture.messages import Wrong
from tests.torture.sink_driver import POINTS

SETTINGS = {
    "zookeeper.session.timeout.ms": "4000",
    "auto.create.topics.enable": "false",
    "transaction.state.log.num.partitions": "5",
}
FORMS = ("pipeline", "stream")
_PARTITIONS = 3
_ROWS = 150
_BAD_EVERY = 40
_ROUNDS_PER_COUNT = 12
_END_WITHIN_S = 60.0
# From the first staged rows on; a few batches take about as long.
_LONGEST_LIFE_S = 2.0


class SinkTorture:
    """One run in one folder."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._dice = random.Random(seed)
        self._say = say
        self._sent = 0
        self._started = time.monotonic()
        self._stack = ExitStack()
        self._spark: StandaloneSpark | None = None
        self.deeds: list[str] = []
        self.rounds = 0

    @property
    def summary(self) -> str:
        return f"{self.rounds} rounds, {self._sent} rows"

    @property
    def last_deeds(self) -> list[str]:
        return self.deeds[-20:]

    def run(self, is_over: Callable[[int], bool]) -> None:
        """Rounds until `is_over`, which is told how many there were; Wrong if a row is not there
        once."""
        with (
            Cluster(3, settings=SETTINGS, folder=self._folder / "cluster") as cluster,
            self._stack,
        ):
            self._cluster = cluster
            cluster.create_topic("numbers", _PARTITIONS, replication_factor=3)
            for form in FORMS:
                for topic in (form, f"{form}-letters"):
                    cluster.create_topic(topic, _PARTITIONS, replication_factor=3)
            try:
                deck: list[Callable[[], None]] = []
                while not is_over(self.rounds):
                    if not deck:
                        deck = self._deck()
                        self._dice.shuffle(deck)
                    self._send()
                    deck.pop()()
                    self.rounds += 1
                    if self.rounds % _ROUNDS_PER_COUNT == 0:
                        self._count()
                self._count()
            except AssertionError as problem:
                raise Wrong(f"{problem}\n{cluster.logs()}") from problem

    def close(self) -> None:
        """Nothing is left: the cluster ends with `run`."""

    def _deck(self) -> list[Callable[[], None]]:
        """Everything that may happen, once."""
        deck: list[Callable[[], None]] = []
        faults = (
            self._kill_the_driver,
            self._kill_workers,
            self._kill_executors,
            self._kill_a_broker,
        )
        for form in FORMS:
            deck += [partial(fault, form) for fault in faults]
        # The commits of a stream are made by processes of Spark's own, which are not to be changed.
        deck += [partial(self._die_at, point, "pipeline") for point in POINTS]
        # Two pipelines on one machine do not get the same checkpoint.
        deck.append(partial(self._wake_a_zombie, "stream"))
        return deck

    def _send(self) -> None:
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "log_level": 0})
        for _ in range(_ROWS):
            value = b"bad %d" if self._sent % _BAD_EVERY == 0 else b'{"number": %d}'
            producer.produce("numbers", value % self._sent, partition=self._sent % _PARTITIONS)
            self._sent += 1
        assert producer.flush(_END_WITHIN_S) == 0

    def _driver(self, form: str, *die_at: str, master: str = "local[2]") -> Driver:
        log = self._folder / f"{self.rounds}-{form}-{time.monotonic_ns()}.log"
        arguments = (form, self._cluster.bootstrap, "numbers", form, str(self._folder), master)
        return Driver("-m", "tests.torture.sink_driver", *arguments, *die_at, log=log)

    def _die_at(self, point: str, form: str) -> None:
        number = self._dice.randrange(2)
        self._do(f"{form}: kill -9 of the driver {point}, at commit {number}")
        with self._driver(form, point, str(number)) as driver:
            driver.process.wait(DRIVER_WITHIN_S)
            assert driver.process.returncode in (0, -signal.SIGKILL), driver.said()

    def _kill_the_driver(self, form: str) -> None:
        with self._driver(form) as driver:
            self._wait_until_staged(form, driver)
            after_s = self._dice.uniform(0, _LONGEST_LIFE_S)
            self._do(f"{form}: kill -9 of the driver {after_s:.2f} s after its first rows")
            time.sleep(after_s)

    def _kill_workers(self, form: str) -> None:
        with self._driver(form) as driver:
            self._wait_until_staged(form, driver)
            for _ in range(self._dice.randrange(1, 4)):
                time.sleep(self._dice.uniform(0, 0.5))
                workers = _workers_below(driver.process.pid)
                if workers:
                    victim = self._dice.choice(workers)
                    self._do(f"{form}: kill -9 of a Python worker, {victim}")
                    with suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)
            # Spark tries a task four times; in local mode it gives up at once, and that is all
            # right: what counts is what the next driver makes of it.
            driver.process.wait(DRIVER_WITHIN_S)

    def _kill_executors(self, form: str) -> None:
        if self._spark is None:
            self._spark = self._stack.enter_context(StandaloneSpark(self._folder / "spark"))
        with self._driver(form, master=self._spark.url) as driver:
            self._wait_until_staged(form, driver)
            for _ in range(self._dice.randrange(1, 3)):
                time.sleep(self._dice.uniform(0, _LONGEST_LIFE_S))
                executors = self._spark.executors()
                for victim in executors[self._dice.randrange(2) :]:
                    self._do(f"{form}: kill -9 of an executor, {victim}")
                    with suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)
            driver.process.wait(DRIVER_WITHIN_S)
            self._do(f"{form}: the driver ended with {driver.process.returncode}")

    def _kill_a_broker(self, form: str) -> None:
        broker = self._dice.choice(self._cluster.brokers)
        with self._driver(form) as driver:
            self._wait_until_staged(form, driver)
            time.sleep(self._dice.uniform(0, _LONGEST_LIFE_S))
            self._do(f"{form}: kill -9 of broker {broker}")
            self._cluster.kill(broker)
            time.sleep(self._dice.uniform(0, 3.0))
            self._cluster.start(broker)
            driver.process.wait(DRIVER_WITHIN_S)
            self._do(f"{form}: the driver ended with {driver.process.returncode}")
        self._cluster.wait_until_in_sync(within_s=_END_WITHIN_S)

    def _wake_a_zombie(self, form: str) -> None:
        with self._driver(form) as sleeper:
            self._wait_until_staged(form, sleeper)
            time.sleep(self._dice.uniform(0, _LONGEST_LIFE_S))
            self._do(f"{form}: freeze the driver, and let another one do its work")
            os.killpg(sleeper.process.pid, signal.SIGSTOP)
            try:
                with self._driver(form) as other:
                    other.process.wait(DRIVER_WITHIN_S)
                    assert other.process.returncode == 0, other.said()
            finally:
                os.killpg(sleeper.process.pid, signal.SIGCONT)
            sleeper.process.wait(DRIVER_WITHIN_S)
            self._do(f"{form}: the first one woke up, and ended with {sleeper.process.returncode}")

    def _wait_until_staged(self, form: str, driver: Driver) -> None:
        """Until the driver's tasks have written something, or it has ended."""
        before = self._end_of(form)
        deadline = time.monotonic() + DRIVER_WITHIN_S
        while driver.process.poll() is None and self._end_of(form) == before:
            assert time.monotonic() < deadline, driver.said()
            time.sleep(0.05)

    def _end_of(self, topic: str) -> int:
        from moldau.peer.cluster import LATEST
        from moldau.peer.cluster import Cluster as Peers
        from moldau.peer.view import parse_bootstrap

        wanted = {(topic, partition): LATEST for partition in range(_PARTITIONS)}
        with Peers(parse_bootstrap(self._cluster.bootstrap)) as peers:
            return sum(each.offset for each in peers.list_offsets(wanted).values())

    def _count(self) -> None:
        """Let drivers finish undisturbed, and count."""
        bad = {number for number in range(self._sent) if number % _BAD_EVERY == 0}
        for form in FORMS:
            with self._driver(form) as driver:
                driver.process.wait(DRIVER_WITHIN_S)
                assert driver.process.returncode == 0, driver.said()
            found = [row["value"] for row in read_by_librdkafka(self._cluster, form, _PARTITIONS)]
            if form == "stream":
                numbers = Counter(int(each.strip(b'bad {}"number:')) for each in found)
                _compare(form, numbers, set(range(self._sent)))
                continue
            numbers = Counter(int(each.strip(b'{}"number:')) for each in found)
            _compare(form, numbers, set(range(self._sent)) - bad)
            letters = read_by_librdkafka(self._cluster, f"{form}-letters", _PARTITIONS)
            _compare(f"{form}, letters", Counter(int(row["value"][4:]) for row in letters), bad)
        self._do(f"every row is there once: {self.summary}")

    def _do(self, deed: str) -> None:
        moment = time.monotonic() - self._started
        self.deeds.append(f"{time.strftime('%H:%M:%S')} {moment:7.2f} s  {deed}")
        self._say(self.deeds[-1])


def _compare(what: str, found: Counter[int], expected: set[int]) -> None:
    twice = sorted(number for number, times in found.items() if times > 1)
    missing = sorted(expected - found.keys())
    strange = sorted(found.keys() - expected)
    if twice or missing or strange:
        raise Wrong(
            f"{what}: {len(missing)} of {len(expected)} rows are missing, such as {missing[:5]}; "
            f"{len(twice)} are there more than once, such as {twice[:5]}; {strange[:5]} are strange"
        )


def _workers_below(pid: int) -> list[int]:
    """The Python processes that run tasks for this driver: children of Spark's daemon."""
    parents: dict[int, int] = {}
    is_daemon: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            fields = (folder / "stat").read_text().rpartition(") ")[2].split()
            parents[int(folder.name)] = int(fields[1])
            if int(fields[2]) == pid and b"daemon" in (folder / "cmdline").read_bytes():
                is_daemon.add(int(folder.name))
    return [child for child, parent in parents.items() if parent in is_daemon]
