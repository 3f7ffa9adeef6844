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
)
from tests.spark.lake import kinds
from tests.spark.lake.changes import copy_in, copy_of, history_in, history_of, random_changes
from tests.spark.lake.kinds import KINDS, Kind
from tests.spark.lake.tables import rows_of, version_of
from tests.spark.topics import Sent, fresh_topic, numbered, produce

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


MERGING = ("-m", "tests.spark.lake.merging_driver")


# The kills are shared out.
EACH_KIND = -(-KILLS // len(KINDS))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(DRIVER_WITHIN_S * (KILLS + 1))
@pytest.mark.slow
def test_killed_drivers_leave_a_copy_and_a_history_as_if_nothing_had_happened(
    moldau_session_broker: Broker, tmp_path: Path, kind: Kind
) -> None:
    broker, luck = moldau_session_broker, random.Random(SEED)
    topic = fresh_topic(broker, partitions=2)
    arguments = (kind, broker.bootstrap, topic, str(tmp_path))
    lsns = luck.sample(range(EACH_KIND * 100), EACH_KIND * 80)
    events = random_changes(luck, lsns)
    for number in range(EACH_KIND):
        some = events[number * 80 : number * 80 + 80]
        records: list[Sent] = [(None, b"%d %d %s" % (k, lsn, v.encode()), []) for k, lsn, v in some]
        # Some come twice, and to another partition.
        produce(broker, topic, records, per_batch=10, partition=number % 2)
        produce(broker, topic, records[:20], per_batch=10, partition=(number + 1) % 2)
        before = kinds.versions_of(kind, tmp_path / "history")
        with Driver(*MERGING, *arguments, "25", log=tmp_path / f"driver-{number}.log") as driver:
            driver.wait_until(lambda: kinds.versions_of(kind, tmp_path / "history") > before)  # noqa: B023
            time.sleep(luck.uniform(0, LONGEST_LIFE_S))
    with Driver(*MERGING, *arguments, "1000", "--once", log=tmp_path / "last.log") as last:
        assert last.process.wait(DRIVER_WITHIN_S) == 0, last.said()
    copy, history = (kinds.rows_of(kind, tmp_path / name) for name in ("copy", "history"))
    assert copy_in(copy) == copy_of(events), f"seed {SEED}"
    assert history_in(history) == history_of(events), f"seed {SEED}"
