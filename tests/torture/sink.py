"""Breaks drivers, workers and brokers below the Spark sink, and counts every row.

Numbers go to a topic; a driver copies them to others exactly once, in every form of the sink at
once (see `sink_driver.py`). In every round something happens to it: the driver is killed with kill
-9 at a point of a commit or at any moment, or Java below it, its Python workers, executors of a
Spark cluster, a broker or a coordinator; a task is overtaken by a second attempt; or the driver is
frozen until another one has done its work. The next order goes on from the same checkpoints. In the
end a consumer that has nothing to do with the sink reads what is committed, and the logs of all
brokers are read on disk: every number must be there once, every record that did not parse must be
one dead letter, and every single write must be there in whole or not at all.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from moldau.peer.cluster import Cluster as Peers
from moldau.peer.view import parse_bootstrap
from moldau.spark.sink.committing import Committer
from tests.spark.processes import JAVA, kill, of_driver, tasks_of
from tests.spark.standalone import StandaloneSpark
from tests.torture.rounds import Deed, Rounds
from tests.torture.sink_count import committed, compare, compare_writes
from tests.torture.sink_deaths import POINTS, Death
from tests.torture.sink_driver import FORM_OF, FORMS, TOPICS
from tests.torture.sink_orders import BAD_EVERY, PARTITIONS, Orders
from tests.torture.warm_driver import WarmDriver

_LETTERS = "pipeline-letters"
_TRANSACTION = 1
_IN_SYNC_WITHIN_S = 60.0


class SinkTorture(Rounds):
    """One run in one folder."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        super().__init__(folder, seed, say)
        self._hands = 0
        self._spark: StandaloneSpark | None = None
        self._orders: Orders
        self._writes_made = 0

    def _begin(self) -> None:
        self._orders = Orders(self._cluster, self._folder, self._dice, self.hits, self._do)
        self._stack.enter_context(closing(self._orders))
        for topic in ("numbers", *TOPICS, _LETTERS):
            self._cluster.create_topic(topic, PARTITIONS, replication_factor=3)

    def _figures(self) -> str:
        return (
            f"{self._orders.given} orders, {self._orders.sent} rows to each of "
            f"{len(TOPICS) - 1} topics, {self._writes_made} of {len(self._orders.writes)} single "
            "writes made"
        )

    def _hand(self) -> list[Deed]:
        """Ten rounds: everything that may happen. After five hands, every death in every form."""
        hand: list[Deed] = [
            partial(self._die_at, point, TOPICS[(number + self._hands) % len(TOPICS)])
            for number, point in enumerate(POINTS)
        ]
        hand += [
            self._kill_the_driver,
            self._kill_workers,
            self._kill_a_broker,
            self._wake_a_zombie,
            self._haunt_a_cluster,
        ]
        self._hands += 1
        return hand

    # What happens

    def _die_at(self, point: str, topic: str) -> None:
        driver = self._orders.take_driver()
        death = Death(point, topic, self._dice.randrange(2), driver.pid)
        self._do(f"kill -9 of the driver {point} of {topic!r}, parity {death.parity}")
        # Another form is in the middle of something then.
        form = FORM_OF[topic]
        beside = self._dice.choice([each for each in FORMS if each != form])
        order = self._orders.give(driver, forms=(form, beside), death=death)
        self._orders.prepare_another()
        self._orders.follow(driver)
        assert driver.process.poll() == -signal.SIGKILL, driver.said()
        self.hits[f"drivers {point}"] += 1
        if topic == "write":
            if point != "in decision":
                label = order.labels[death.parity]
                self._orders.writes[label] = point != "before decision"
            # Otherwise the next order finishes it.
            if self._dice.random() < 0.5:
                self._recover()
                self._compare_writes()

    def _kill_the_driver(self) -> None:
        driver = self._orders.take_driver()
        is_java = self._dice.random() < 0.5

        def strike() -> bool:
            self._do(f"kill -9 of {'Java' if is_java else 'the driver'}")
            self._orders.prepare_another()
            if is_java:
                self.hits["Java"] += (hit := kill(*of_driver(driver.pid, JAVA)))
                return hit > 0
            driver.kill()
            self.hits["drivers at any moment"] += 1
            return True

        self._orders.strike(driver, strike)
        driver.kill()

    def _kill_workers(self) -> None:
        driver = self._orders.take_driver()

        def strike() -> bool:
            hit = 0
            for _ in range(self._dice.randrange(1, 4)):
                if workers := tasks_of(driver.pid):
                    hit += kill(self._dice.choice(workers))
                time.sleep(self._dice.uniform(0, 0.5))
            self._do(f"kill -9 of {hit} Python workers")
            self.hits["workers"] += hit
            return hit > 0

        self._orders.strike(driver, strike)

    def _kill_a_broker(self) -> None:
        def strike() -> bool:
            coordinator = self._a_coordinator()
            if coordinator is None or self._dice.random() < 0.3:
                broker = self._dice.choice(self._cluster.brokers)
            else:
                broker = coordinator
            what = "coordinators" if broker == coordinator else "brokers"
            self._do(f"kill -9 of broker {broker}, one of the {what}")
            self._cluster.kill(broker)
            self.hits[what] += 1
            time.sleep(self._dice.uniform(0, 2.0))
            self._cluster.start(broker)
            return True

        self._orders.strike(self._orders.take_driver(), strike)
        self._cluster.wait_until_in_sync(within_s=_IN_SYNC_WITHIN_S)

    def _a_coordinator(self) -> int | None:
        """A broker that has an open transaction of the sink."""
        with Peers(parse_bootstrap(self._cluster.bootstrap)) as peers:
            if not (ids := Committer(peers).ongoing(with_begun=True)):
                return None
            id = self._dice.choice(ids)
            return peers.insist(lambda: peers.coordinator(id, _TRANSACTION)).id

    def _wake_a_zombie(self) -> None:
        # Two pipelines on one machine do not get the same checkpoint.
        forms = ("stream", "batches")
        sleeper = self._orders.take_driver()
        other = self._orders.prepare_another()
        other.wait_until_ready()

        def strike() -> bool:
            with_workers = self._dice.random() < 0.5
            self._do(f"freeze the driver{', and its workers' if with_workers else ''}")
            sleeper.freeze(with_workers=with_workers)
            try:
                if not sleeper.is_working:
                    return False
                self._orders.carry_out(other, forms=forms)
            finally:
                sleeper.thaw()
            self._do("another one has done its work, and it wakes up")
            self.hits["zombies"] += 1
            return True

        self._orders.strike(sleeper, strike, forms=forms)

    def _haunt_a_cluster(self) -> None:
        """On executors: a task is overtaken, executors die, and then the driver."""
        if self._spark is None:
            self._spark = self._stack.enter_context(StandaloneSpark(self._folder / "spark"))
        spark = self._spark
        driver = self._orders.new_driver(spark.url)
        try:
            driver.wait_until_ready()
            self._overtake(driver)

            def kill_executors() -> bool:
                found = spark.executors()
                hit = kill(*found[self._dice.randrange(2) :])
                self._do(f"kill -9 of {hit} of {len(found)} executors")
                self.hits["executors"] += hit
                return hit > 0

            def kill_the_driver() -> bool:
                self._do("kill -9 of the driver, without its executors")
                driver.kill()
                self.hits["drivers of executors"] += 1
                return True

            self._orders.strike(driver, kill_executors)
            self._orders.strike(driver, kill_the_driver)
        finally:
            driver.kill()

    def _overtake(self, driver: WarmDriver) -> None:
        flag, overtaken = self._folder / "straggle", self._folder / "overtaken"
        straggler = self._dice.choice(("stream", "batches", "write"))
        self._do(f"a task of {straggler!r} waits for a second attempt")
        flag.touch()
        overtaken.unlink(missing_ok=True)
        self._orders.give(driver, straggler=straggler)
        while driver.is_working and not overtaken.exists():
            time.sleep(0.05)
        flag.unlink()
        self._orders.follow(driver)
        assert overtaken.exists(), driver.said()
        self.hits["second attempts"] += 1

    # What must be so

    def _recover(self) -> None:
        """`moldau transactions recover`, when no driver is at work."""
        given = ("--older-than", "0", "--bootstrap", self._cluster.bootstrap)
        command = [sys.executable, "-m", "moldau", "transactions", "recover", *given]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert ended.returncode == 0, ended.stderr
        self._do(f"recover: {len(ended.stdout.splitlines())} things were done")

    def _check(self) -> None:
        """Let a driver finish undisturbed, and count."""
        self._orders.carry_out(self._orders.take_driver())
        self._recover()
        self._compare_writes()
        every = set(range(self._orders.sent))
        bad = {number for number in every if number % BAD_EVERY == 0}
        for topic in ("stream", "batches", "marked"):
            compare(topic, self._numbers(topic, b'bad {}"number:'), every)
        compare("pipeline", self._numbers("pipeline", b'{}"number:'), every - bad)
        compare("letters", self._numbers(_LETTERS, b"bad "), bad)
        self._do(f"every row is there once: {self.summary}")

    def _numbers(self, topic: str, around: bytes) -> list[int]:
        return [int(value.strip(around)) for value in committed(self._cluster, topic, PARTITIONS)]

    def _compare_writes(self) -> None:
        found = committed(self._cluster, "write", PARTITIONS)
        self._writes_made = compare_writes(found, self._orders.writes)
