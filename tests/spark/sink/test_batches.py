"""`to_topic` and named writes, several of them for one batch: real broker, no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from moldau.spark.lake import tasks
from moldau.spark.sink import stage
from moldau.spark.sink.batches import to_topic
from moldau.spark.sink.committing import AlreadyDecided
from moldau.spark.sink.options import SinkOptions
from moldau.spark.sink.sink import BatchWriter
from moldau.spark.sink.staged import BATCH, QUERY, RUN
from moldau.testing import Broker
from tests.spark.sink.staging import values
from tests.spark.topics import fresh_topic

VALUE = StructType([StructField("value", StringType())])
WITH_TOPIC = StructType([StructField("topic", StringType()), StructField("value", StringType())])


@dataclass
class Frame:
    """The rows of one task."""

    rows: list[dict[str, str]]
    schema: StructType = VALUE

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(self.rows)


@dataclass
class Mapped:
    rows: list[dict[str, Any]]

    def collect(self) -> list[dict[str, Any]]:
        return self.rows


@dataclass
class Query:
    """A streaming query: what Spark tells its tasks."""

    id: str
    run: int = 0
    batch: int = 0

    def getLocalProperty(self, name: str) -> str | None:
        known = {QUERY: self.id, RUN: f"run-{self.run}-of-{self.id}", BATCH: str(self.batch)}
        return known.get(name)


def end_workers() -> None:
    """Close what tasks have kept for the next ones."""
    while stage._stages:
        stage._stages.popitem()[1].close()


@pytest.fixture(autouse=True)
def workers() -> Iterator[None]:
    yield
    end_workers()


@pytest.fixture
def stream(query: str, monkeypatch: pytest.MonkeyPatch) -> Query:
    def map_in_arrow(frame: Frame, function: tasks.ArrowMap, _: str) -> Mapped:
        return Mapped([row for each in function(frame.batches()) for row in each.to_pylist()])

    made = Query(query)
    monkeypatch.setattr(tasks, "map_in_arrow", map_in_arrow)
    monkeypatch.setattr(TaskContext, "get", lambda: made)
    return made


def rows(*values: str, topic: str | None = None) -> Any:
    if topic is None:
        return Frame([{"value": each} for each in values])
    return Frame([{"topic": topic, "value": each} for each in values], WITH_TOPIC)


@pytest.fixture
def sink(moldau_session_broker: Broker) -> Callable[..., Callable[[Any, int], None]]:
    where = {"kafka.bootstrap.servers": moldau_session_broker.bootstrap}
    return lambda topic=None: to_topic(topic, **where)


def test_a_batch_goes_to_two_topics(
    moldau_session_broker: Broker, topic: str, stream: Query, sink: Callable[..., Any]
) -> None:
    other = fresh_topic(moldau_session_broker, partitions=2)
    to_one, to_other = sink(topic), sink(other)
    for stream.batch in range(2):
        to_one(rows(f"a{stream.batch}"), stream.batch)
        to_other(rows(f"b{stream.batch}"), stream.batch)
    # The driver starts again before Spark has noted that the last batch is done.
    stream.run += 1
    sink(topic)(rows("a1"), 1)
    sink(other)(rows("b1"), 1)
    assert values(moldau_session_broker, topic) == ["a0", "a1"]
    assert values(moldau_session_broker, other) == ["b0", "b1"]


@pytest.mark.parametrize("is_same", [True, False])
@pytest.mark.parametrize("has_column", [True, False])
@pytest.mark.parametrize("has_worker", [True, False])
def test_a_second_write_of_a_batch_to_the_same_place_is_refused(
    moldau_session_broker: Broker, topic: str, stream: Query, sink: Callable[..., Any],
    *, is_same: bool, has_column: bool, has_worker: bool,
) -> None:  # fmt: skip
    """By the same function or by another; the worker that wrote first is there, or a new one."""
    column = topic if has_column else None
    write = sink(None if has_column else topic)
    write(rows("a", topic=column), 0)
    if not has_worker:
        end_workers()
    second = write if is_same else sink(None if has_column else topic)
    # Nothing is left out as long as there is nothing to write.
    second(rows(topic=column), 0)
    with pytest.raises(AlreadyDecided, match="written to the same topic twice"):
        second(rows("b", topic=column), 0)
    assert values(moldau_session_broker, topic) == ["a"]


def test_a_query_that_starts_again_in_the_same_process_finds_its_decision(
    moldau_session_broker: Broker, topic: str, stream: Query, sink: Callable[..., Any]
) -> None:
    write = sink(topic)
    for stream.batch in range(2):
        write(rows(str(stream.batch)), stream.batch)
    # It was stopped before Spark had noted that batch 1 is done; the workers live on.
    stream.run += 1
    for stream.batch in (1, 2):
        write(rows(str(stream.batch)), stream.batch)
    assert values(moldau_session_broker, topic) == ["0", "1", "2"]


def test_a_txn_app_id_is_a_topics_own(
    moldau_session_broker: Broker, topic: str, query: str
) -> None:
    other = fresh_topic(moldau_session_broker, partitions=2)
    base = {"kafka.bootstrap.servers": moldau_session_broker.bootstrap, "txnAppId": query}
    for version in ("0", "1", "1"):
        for name in (topic, other):
            given = base | {"topic": name, "txnVersion": version}
            writer = BatchWriter(SinkOptions.parse(given, VALUE))
            writer.commit([writer.write(rows(f"{name} {version}").batches())])
    for name in (topic, other):
        assert values(moldau_session_broker, name) == [f"{name} 0", f"{name} 1"]
