"""kill -9 of the whole driver at random moments: the table has every record exactly once.

MOLDAU_TEST_KILLS says how often (3), MOLDAU_TEST_SEED when (a new seed each time, which is shown).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from moldau.testing import Broker
from tests.spark.lake.tables import rows_of
from tests.spark.standalone import QUICK_JAVA
from tests.spark.topics import fresh_topic, numbered, produce

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
KILLS = int(os.environ.get("MOLDAU_TEST_KILLS", "3"))
SEED = int(os.environ.get("MOLDAU_TEST_SEED", "0")) or random.randrange(1, 1 << 32)
DRIVER_WITHIN_S = 180.0
A_KILL = 300
# From the first batch of a driver to its death: one batch and its upkeep take about as long.
LONGEST_LIFE_S = 1.5


class Driver:
    """The program of copying.py, with Java and all workers in one process group."""

    def __init__(self, *arguments: str, log: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.lake.copying", *arguments],
                cwd=ROOT,
                env=os.environ | {"JDK_JAVA_OPTIONS": QUICK_JAVA},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(10)

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")[-3000:]


def version_of(table: Path) -> int:
    return DeltaTable(table).version() if DeltaTable.is_deltatable(str(table)) else -1


@pytest.mark.timeout(DRIVER_WITHIN_S * (KILLS + 1))
def test_killed_drivers_leave_every_record_in_the_table_once(
    moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker, table, luck = moldau_session_broker, tmp_path / "table", random.Random(SEED)
    topic = fresh_topic(broker, partitions=2)
    arguments = (broker.bootstrap, topic, str(tmp_path))
    for number in range(KILLS):
        produce(
            broker, topic, numbered(number * A_KILL, A_KILL), per_batch=10, partition=number % 2
        )
        before = version_of(table)
        driver = Driver(*arguments, "30", log=tmp_path / f"driver-{number}.log")
        try:
            deadline = time.monotonic() + DRIVER_WITHIN_S
            while version_of(table) == before:
                assert driver.process.poll() is None, driver.said()
                assert time.monotonic() < deadline, driver.said()
                time.sleep(0.02)
            time.sleep(luck.uniform(0, LONGEST_LIFE_S))
        finally:
            driver.kill()
    last = Driver(*arguments, "1000", "--once", log=tmp_path / "last.log")
    try:
        assert last.process.wait(DRIVER_WITHIN_S) == 0, last.said()
    finally:
        last.kill()
    rows = rows_of(table)
    assert sorted(row["n"] for row in rows) == list(range(KILLS * A_KILL)), f"seed {SEED}"
    assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows)
