"""The scene of a trial: a connector by its name, on a session and a broker that both share."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.spark.topics import delete_topic, fresh_topic, numbered, produce

OWN, OURS = "kafka", "moldau"
WITHIN_S = 120

_names = itertools.count()


@dataclass(frozen=True, slots=True)
class Running:
    """A query that has been started, and the values of its batches that had any."""

    query: StreamingQuery
    batches: list[list[int]]

    def until(self, is_so: Callable[[], Any], what: str) -> None:
        def asked() -> bool:
            problem = self.query.exception()
            if problem is not None:
                raise problem
            return bool(is_so())

        until(asked, what, WITHIN_S)

    @property
    def source(self) -> dict[str, Any]:
        """The source's part of Spark's last report."""
        report = self.query.lastProgress
        return {} if report is None else dict(json.loads(report.json)["sources"][0])


@dataclass(frozen=True, slots=True)
class Left:
    """The topics of a query that has been stopped, and what it left."""

    topics: tuple[str, ...]
    folder: str

    def checkpoint(self) -> str:
        """Return a copy of its checkpoint."""
        return str(shutil.copytree(self.folder, f"{self.folder}-{next(_names)}"))


class Scene:
    """Reads and writes with one connector. `log` has what Spark and its workers write to stderr."""

    def __init__(
        self, spark: SparkSession, broker: Broker, connector: str, folder: Path, log: Path
    ) -> None:
        self.spark = spark
        self.broker = broker
        self.connector = connector
        self._folder = folder
        self._log = log

    @property
    def other(self) -> str:
        return OURS if self.connector == OWN else OWN

    def topic(self, count: int = 10, partitions: int = 1, *, first_ms: int | None = None) -> str:
        """Return a topic with numbers: from 0 in its first partition, from 100 in its second."""
        topic = fresh_topic(self.broker, partitions)
        for partition in range(partitions):
            self.add(topic, 100 * partition, count, partition=partition, first_ms=first_ms)
        return topic

    def add(
        self,
        topic: str,
        first: int,
        count: int,
        *,
        partition: int = 0,
        first_ms: int | None = None,
    ) -> None:
        rows = numbered(first, count)
        produce(self.broker, topic, rows, partition=partition, first_ms=first_ms)

    def read(self, **options: str) -> DataFrame:
        reader = self.spark.read.format(self.connector)
        return reader.options(**self._reached, **options).load()

    def values(self, **options: str) -> list[int]:
        return _values(self.read(**options))

    def stream(self, connector: str = "", **options: str) -> DataFrame:
        """Return a stream from the start, unless the options say otherwise."""
        if not any(name.startswith("starting") for name in options):
            options["startingOffsets"] = "earliest"
        reader = self.spark.readStream.format(connector or self.connector)
        return reader.options(**self._reached, **options).load()

    def checkpoint(self) -> str:
        return str(self._folder / f"checkpoint-{next(_names)}")

    @contextmanager
    def running(self, frame: DataFrame, checkpoint: str = "", **trigger: Any) -> Iterator[Running]:
        batches: list[list[int]] = []

        def keep(batch: DataFrame, _: int) -> None:
            if found := _values(batch):
                batches.append(found)

        writer = frame.writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", checkpoint or self.checkpoint())
        query = writer.trigger(**trigger or {"processingTime": "0 seconds"}).start()
        try:
            yield Running(query, batches)
        finally:
            query.stop()

    def run(self, frame: DataFrame, checkpoint: str = "") -> list[list[int]]:
        """Return the batches of all that is there now."""
        with self.running(frame, checkpoint, availableNow=True) as running:
            assert running.query.awaitTermination(WITHIN_S), "the query does not end"
            return running.batches

    def write(self, frame: DataFrame, mode: str = "append", **options: str) -> None:
        writer = frame.write.format(self.connector).options(**self._reached, **options)
        (writer.mode(mode) if mode else writer).save()

    def write_stream(
        self, frame: DataFrame, mode: str, topic: str, connector: str = "", **trigger: Any
    ) -> Running:
        """Start a query that writes to a topic; who calls it stops it."""
        writer = frame.writeStream.format(connector or self.connector).options(
            **self._reached, topic=topic
        )
        writer = writer.outputMode(mode).option("checkpointLocation", self.checkpoint())
        return Running(writer.trigger(**trigger or {"availableNow": True}).start(), [])

    def in_memory(self, frame: DataFrame, mode: str, **trigger: Any) -> Running:
        """Start a query into a table of its name; who calls it stops it."""
        writer = frame.writeStream.format("memory").queryName(f"memory_{next(_names)}")
        writer = writer.outputMode(mode).option("checkpointLocation", self.checkpoint())
        return Running(writer.trigger(**trigger).start(), [])

    def groups(self) -> list[str]:
        """Return the names of all groups of the broker."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        listed = admin.list_consumer_groups().result(WITHIN_S)
        return [group.group_id for group in listed.valid or ()]

    def has_logged(self, word: str) -> bool:
        return word.lower() in self._log.read_text(errors="replace").lower()

    @cached_property
    def reported(self) -> tuple[str, dict[str, Any]]:
        """A topic of ten, and what Spark reports of its source after a batch of four."""
        topic = self.topic(10)
        frame = self.stream(subscribe=topic, maxOffsetsPerTrigger="4")
        with self.running(frame, availableNow=True) as running:
            assert running.query.awaitTermination(WITHIN_S), "the query does not end"
            reports = [json.loads(report.json) for report in running.query.recentProgress]
        return topic, dict(reports[0]["sources"][0])

    @cached_property
    def one_deleted(self) -> Left:
        """A query of two topics that has read two records of each; one is deleted, one has more."""
        kept, deleted, folder = self.topic(2), self.topic(2), self.checkpoint()
        assert self.run(self.stream(subscribe=f"{kept},{deleted}"), folder) == [[0, 0, 1, 1]]
        delete_topic(self.broker, deleted)
        self.add(kept, 2, 2)
        return Left((kept, deleted), folder)

    @cached_property
    def recreated(self) -> Left:
        """A query of a topic that has read three records; five are in a new one of its name."""
        topic, folder = self.topic(3), self.checkpoint()
        assert self.run(self.stream(subscribe=topic), folder) == [[0, 1, 2]]
        delete_topic(self.broker, topic)
        self.broker.create_topic(topic, 1)
        self.add(topic, 10, 5)
        return Left((topic,), folder)

    @property
    def _reached(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.broker.bootstrap}


def _values(frame: DataFrame) -> list[int]:
    return sorted(int(row["value"]) for row in frame.select("value").collect())
