"""Kills whatever runs below a pipeline with sinks of every kind, and compares all they wrote.

Changes go to a topic in any order, some of them twice. One pipeline writes them to Delta and
Iceberg tables, each as they come, as a copy by keys and as a history, and to a topic. In every
round something is killed with kill -9: the driver, Java below it, a Python worker, the process that
asks for offsets, a broker, or executors of a Spark cluster. After some rounds the pipeline reads to
the end, and plain Python says what must be there: no row is lost, doubled or stale.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moldau.testing.waiting import until
from tests.spark.drivers import DRIVER_WITHIN_S, Driver
from tests.spark.lake import tables as delta
from tests.spark.lake.changes import (
    Change,
    copy_in,
    copy_of,
    history_in,
    history_of,
    random_changes,
)
from tests.spark.lake.iceberg import tables as iceberg
from tests.spark.processes import JAVA, SOURCE_RUNNER, kill, of_driver, tasks_of
from tests.spark.standalone import ON_THIS_MACHINE, StandaloneSpark
from tests.spark.topics import Sent, produce, read_by_librdkafka
from tests.torture.messages import Wrong
from tests.torture.rounds import Deed, Rounds

MASTER = "local[2,4]"
SOURCE = """
bootstrap = "{bootstrap}"
checkpoint = "checkpoint"
trigger = "100 milliseconds"
[spark]
{spark}
[sources.changes]
topic = "changes"
schema = "n INT NOT NULL, k INT NOT NULL, lsn INT NOT NULL, v STRING NOT NULL"
max_records_per_batch = 40
[tables.rows]
sql = "SELECT k, lsn, v, v = '' AS is_gone FROM changes"
[sinks.topic]
from = "changes"
type = "topic"
topic = "copied"
"""
TABLES = {"delta": 'path = "{name}"', "iceberg": 'table = "lake.{name}"\nwarehouse = "warehouse"'}
MERGE = 'keys = ["k"]\norder_by = "lsn"\ndelete_where = "is_gone"\n'
SHAPES = {"raw": ("changes", ""), "copy": ("rows", MERGE), "history": ("rows", MERGE + "scd = 2\n")}
_PARTITIONS = 2
_CHANGES = 80
_TWICE = 20
# From the first batch on: several sinks write theirs meanwhile.
_LONGEST_LIFE_S = 5.0
_IN_SYNC_WITHIN_S = 60.0


class PipelineTorture(Rounds):
    """One run in one folder; `is_short` does each deed once before it checks."""

    def __init__(
        self, folder: Path, seed: int, say: Callable[[str], None], *, is_short: bool = False
    ) -> None:
        super().__init__(folder, seed, say)
        self._is_short = is_short
        self._file = folder / "torture.toml"
        self._pipeline: Driver | None = None
        self._spark: StandaloneSpark | None = None
        self._changes: list[Change] = []
        # Every record that was sent has a number.
        self._sent = 0

    def _begin(self) -> None:
        self._file.write_text(_pipeline_of(self._cluster.bootstrap), "utf-8")
        for topic in ("changes", "copied"):
            self._cluster.create_topic(topic, _PARTITIONS, replication_factor=3)

    def _figures(self) -> str:
        return (
            f"{self._sent} records of {len(self._changes)} changes through "
            f"{len(TABLES) * len(SHAPES) + 1} sinks"
        )

    def _hand(self) -> list[Deed]:
        """Everything that may happen, and what happens most, more often."""
        each: list[Deed] = [
            *(self._kill_the_driver, self._kill_java, self._kill_workers),
            *(self._kill_the_source_runner, self._kill_a_broker, self._kill_executors),
        ]
        more: list[Deed] = [
            *(self._kill_the_driver, self._kill_workers),
            *(self._kill_the_source_runner, self._kill_a_broker),
        ]
        return each if self._is_short else [*each, *more]

    # The pipeline, and its work

    def _run_pipeline(self, *more: str, master: str = MASTER) -> Driver:
        log = self._folder / f"pipeline-{time.monotonic_ns()}.log"
        run = ("-m", "moldau", "pipeline", "run", str(self._file), "--master", master)
        return self._stack.enter_context(Driver(*run, *more, log=log))

    def _end_pipeline(self) -> None:
        if self._pipeline is not None:
            self._pipeline.kill()
            self._pipeline = None

    def _work(self, master: str = MASTER) -> Driver:
        """Send changes, and return at some moment while the pipeline writes them."""
        before = self._progress()
        self._send()
        deadline = time.monotonic() + DRIVER_WITHIN_S
        while self._progress() == before:
            if self._pipeline is None or self._pipeline.process.poll() is not None:
                # A failure while it starts is final, and what was killed last may cause one.
                self._pipeline = self._run_pipeline(master=master)
            assert time.monotonic() < deadline, self._pipeline.said()
            time.sleep(0.05)
        assert self._pipeline is not None
        time.sleep(self._dice.uniform(0, _LONGEST_LIFE_S))
        return self._pipeline

    def _send(self) -> None:
        lsns = list(range(len(self._changes), len(self._changes) + _CHANGES))
        self._dice.shuffle(lsns)
        some = random_changes(self._dice, lsns)
        again = self._dice.sample(self._changes + some, _TWICE)
        self._changes += some
        for partition, changes in enumerate((some[::2] + again, some[1::2])):
            records = [self._record(change) for change in changes]
            produce(self._cluster, "changes", records, partition=partition, per_batch=10)

    def _record(self, change: Change) -> Sent:
        value = json.dumps({"n": self._sent, **change._asdict()})
        self._sent += 1
        return None, value.encode(), []

    def _progress(self) -> int:
        """Grows with every batch that a sink has written."""
        logs = [
            *self._folder.glob("*/_delta_log/*.json"),
            *self._folder.glob("warehouse/**/*.avro"),
        ]
        return len(logs)

    def _hit(self, what: str, count: int = 1) -> None:
        self._do(f"kill -9: {count} {what}")
        self.hits[what] += count

    # What happens

    def _kill_the_driver(self) -> None:
        self._work()
        self._end_pipeline()
        self._hit("drivers")

    def _kill_java(self) -> None:
        # It ends, or starts Java again: both are all right.
        self._strike("Java", lambda driver: of_driver(driver, JAVA))

    def _kill_workers(self) -> None:
        self._strike("workers", tasks_of)

    def _kill_the_source_runner(self) -> None:
        self._strike("source runners", lambda driver: of_driver(driver, SOURCE_RUNNER))

    def _strike(self, what: str, find: Callable[[int], list[int]], master: str = MASTER) -> None:
        """Kill some processes of the pipeline's at work, and see it go on.

        There may be none yet where what was killed last has not been started again.
        """
        pipeline = self._work(master)
        deadline = time.monotonic() + DRIVER_WITHIN_S
        while not (count := kill(*self._some(find(pipeline.process.pid)))):
            assert time.monotonic() < deadline, pipeline.said()
            if pipeline.process.poll() is not None:
                pipeline = self._work(master)
            time.sleep(0.05)
        self._hit(what, count)
        self._work_on(pipeline)

    def _some(self, pids: list[int]) -> list[int]:
        return self._dice.sample(pids, self._dice.randint(1, len(pids))) if pids else []

    def _kill_a_broker(self) -> None:
        pipeline = self._work()
        broker = self._dice.choice(self._cluster.brokers)
        self._cluster.kill(broker)
        self._hit("brokers")
        time.sleep(self._dice.uniform(0, 3.0))
        self._cluster.start(broker)
        self._cluster.wait_until_in_sync(within_s=_IN_SYNC_WITHIN_S)
        self._work_on(pipeline)

    def _kill_executors(self) -> None:
        self._end_pipeline()
        if self._spark is None:
            self._spark = self._stack.enter_context(StandaloneSpark(self._folder / "spark"))
        spark = self._spark
        self._strike("executors", lambda _: spark.executors(), spark.url)
        self._end_pipeline()
        self._hit("drivers of executors")

    def _work_on(self, pipeline: Driver) -> None:
        """Until the pipeline has written more, or has given up."""
        before = self._progress()

        def is_on() -> bool:
            return self._progress() != before or pipeline.process.poll() is not None

        until(is_on, "the pipeline going on, or its end", DRIVER_WITHIN_S)
        if pipeline.process.poll() is not None:
            self._do(f"the pipeline ended with {pipeline.process.poll()}")
            self.hits["pipelines that gave up"] += 1

    # What must be so

    def _check(self) -> None:
        """Read to the end, and compare everything."""
        self._end_pipeline()
        more = ("--once", "--set", "sources.changes.max_records_per_batch=10000")
        with self._run_pipeline(*more) as last:
            assert last.process.wait(DRIVER_WITHIN_S) == 0, last.said()
        copied = read_by_librdkafka(self._cluster, "copied", _PARTITIONS)
        self._compare_numbers("the topic", [json.loads(row["value"])["n"] for row in copied])
        for kind in TABLES:
            raw, copy, history = (self._rows_of(kind, f"{kind}_{shape}") for shape in SHAPES)
            self._compare_numbers(f"{kind}, raw", [row["n"] for row in raw])
            if copy_in(copy) != copy_of(self._changes):
                raise Wrong(f"{kind}: {copy_in(copy)} is not {copy_of(self._changes)}")
            if history_in(history) != history_of(self._changes):
                raise Wrong(f"{kind}: {history_in(history)} is not {history_of(self._changes)}")
        self._do(f"every row is right: {self.summary}")

    def _rows_of(self, kind: str, name: str) -> list[dict[str, Any]]:
        if kind == "delta":
            return delta.rows_of(self._folder / name)
        return iceberg.rows_of(self._folder / "warehouse", f"lake.{name}")

    def _compare_numbers(self, what: str, found: list[int]) -> None:
        times = Counter(found)
        twice = [number for number in times if times[number] > 1]
        missing = sorted(set(range(self._sent)) - times.keys())
        if twice or missing or len(times) != self._sent:
            raise Wrong(
                f"{what}: {len(missing)} of {self._sent} records are missing, such as "
                f"{missing[:5]}; {len(twice)} are there more than once, such as {twice[:5]}"
            )


def _pipeline_of(bootstrap: str) -> str:
    config = {**ON_THIS_MACHINE, "spark.sql.shuffle.partitions": "2"}
    spark = "\n".join(f'"{name}" = "{value}"' for name, value in config.items())
    text = SOURCE.format(bootstrap=bootstrap, spark=spark)
    for kind, place in TABLES.items():
        for shape, (table, more) in SHAPES.items():
            name = f"{kind}_{shape}"
            where = place.format(name=name)
            text += f'[sinks.{name}]\nfrom = "{table}"\ntype = "{kind}"\noptimize_every = 4\n'
            text += f"{where}\n{more}"
    return text
