"""kill -9 of the whole driver at random moments: the table has every record exactly once."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from moldau.testing import Broker
from tests.spark.drivers import (
    DRIVER_WITHIN_S,
    KILLS,
    LONGEST_LIFE_S,
    SEED,
    Driver,
    version_of,
)
from tests.spark.lake.tables import rows_of
from tests.spark.topics import fresh_topic, numbered, produce

pytestmark = pytest.mark.spark

A_KILL = 300
COPYING = ("-m", "tests.spark.lake.copying")


@pytest.mark.timeout(DRIVER_WITHIN_S * (KILLS + 1))
@pytest.mark.slow
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
        with Driver(*COPYING, *arguments, "30", log=tmp_path / f"driver-{number}.log") as driver:
            driver.wait_until(lambda: version_of(table) > before)  # noqa: B023
            time.sleep(luck.uniform(0, LONGEST_LIFE_S))
    with Driver(*COPYING, *arguments, "1000", "--once", log=tmp_path / "last.log") as last:
        assert last.process.wait(DRIVER_WITHIN_S) == 0, last.said()
    rows = rows_of(table)
    assert sorted(row["n"] for row in rows) == list(range(KILLS * A_KILL)), f"seed {SEED}"
    assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows)
