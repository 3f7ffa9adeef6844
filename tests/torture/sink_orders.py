"""Orders to drivers of the sink: what they must have copied, and may have written."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer

from moldau.peer.cluster import LATEST
from moldau.peer.cluster import Cluster as Peers
from moldau.peer.view import parse_bootstrap
from moldau.testing import Cluster
from tests.torture.sink_count import after_failure
from tests.torture.sink_deaths import Death
from tests.torture.sink_driver import FORMS, TOPICS, Answer, Order
from tests.torture.warm_driver import WarmDriver

PARTITIONS = 2
BAD_EVERY = 40
# A task that fails is tried again.
MASTER = "local[2,4]"
# For two batches of each form: deaths come at those of even or of odd number.
_ROWS = 80
_FLUSH_WITHIN_S = 60.0
# From the first staged rows on; a few batches take about as long.
_LONGEST_LIFE_S = 3.0
# An order may have been carried out before anything could happen to it.
_TRIES = 5


class Orders:
    """All orders of one run. `sent` numbers must be copied; `writes` were made, were not (False),
    or nobody knows (None)."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        dice: random.Random,
        hits: Counter[str],
        do: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._folder = folder
        self._dice = dice
        self._hits = hits
        self._do = do
        self._stack = ExitStack()
        self._driver: WarmDriver | None = None
        # It takes as long to start as the topics do.
        self._spare: WarmDriver | None = self.new_driver()
        self.writes: dict[str, bool | None] = {}
        self.sent = 0
        self.given = 0

    def close(self) -> None:
        self._stack.close()

    def new_driver(self, master: str = MASTER) -> WarmDriver:
        log = self._folder / f"driver-{time.monotonic_ns()}.log"
        arguments = (self._cluster.bootstrap, str(self._folder), master)
        return self._stack.enter_context(WarmDriver(*arguments, log=log))

    def take_driver(self) -> WarmDriver:
        """The one that is there, or the next."""
        if self._driver is None or not self._driver.is_alive:
            self._driver, self._spare = self._spare or self.new_driver(), None
        self._driver.wait_until_ready()
        return self._driver

    def prepare_another(self) -> WarmDriver:
        """Start the next driver, beside one that is to die."""
        if self._spare is None:
            self._spare = self.new_driver()
        return self._spare

    def give(
        self,
        driver: WarmDriver,
        *,
        forms: tuple[str, ...] = FORMS,
        death: Death | None = None,
        straggler: str | None = None,
    ) -> Order:
        """Send more numbers, and let the driver work on them."""
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "log_level": 0})
        for _ in range(_ROWS):
            value = b"bad %d" if self.sent % BAD_EVERY == 0 else b'{"number": %d}'
            producer.produce("numbers", value % self.sent, partition=self.sent % PARTITIONS)
            self.sent += 1
        assert producer.flush(_FLUSH_WITHIN_S) == 0
        order = Order(self.given, forms, death, straggler)
        self.given += 1
        if "write" in forms:
            self.writes |= dict.fromkeys(order.labels)
        driver.give(order)
        return order

    def follow(self, driver: WarmDriver) -> None:
        """Until the driver has done what it was told, or is dead."""
        answer = driver.wait()
        for label in driver.written():
            self.writes[label] = True
        if answer is None:
            self._do(f"the driver ended with {driver.process.poll()}")
            return
        if (problem := answer.failures.get("write")) is not None:
            labels = Order(answer.number).labels
            self.writes |= after_failure(labels, driver.written(), problem)
        for form, problem in answer.failures.items():
            self._do(f"{form} failed: {' '.join(problem.split())[:200]}")
            if "has taken over" in problem:
                self._hits["fenced queries"] += 1

    def carry_out(self, driver: WarmDriver, *, forms: tuple[str, ...] = FORMS) -> None:
        """An order to which nothing happens."""
        self.give(driver, forms=forms)
        self.follow(driver)
        assert driver.answer() == Answer(self.given - 1, {}), driver.said()

    def strike(
        self,
        driver: WarmDriver,
        strike: Callable[[], bool],
        *,
        forms: tuple[str, ...] = FORMS,
    ) -> None:
        """Strike at any moment while the driver works; `strike` says whether somebody was hit."""
        for _ in range(_TRIES):
            before = self._ends()
            self.give(driver, forms=forms)
            while driver.is_working and self._ends() == before:
                time.sleep(0.1)
            time.sleep(self._dice.uniform(0, _LONGEST_LIFE_S))
            is_hit = driver.is_working and strike()
            self.follow(driver)
            if is_hit:
                return
        raise AssertionError(f"in {_TRIES} orders nobody could be hit:\n{driver.said()}")

    def _ends(self) -> list[int]:
        """Where the topics end, with all that is staged."""
        places = {(topic, partition): LATEST for topic in TOPICS for partition in range(PARTITIONS)}
        with Peers(parse_bootstrap(self._cluster.bootstrap)) as peers:
            return [each.offset for each in peers.list_offsets(places).values()]
