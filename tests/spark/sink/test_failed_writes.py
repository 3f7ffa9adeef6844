"""Writes that fail while their tasks are at work, and recovery after others had bugs in theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace as changed
from pyspark.sql.types import StringType, StructField, StructType

from moldau.broker.coordination.transactions.machine import LAST_CLIENT_EPOCH
from moldau.broker.coordination.transactions.transaction import Identity
from moldau.broker.server import Broker as Server
from moldau.peer.cluster import Cluster
from moldau.peer.coordinators import Coordinators, PreparedTransaction
from moldau.peer.errors import PeerError
from moldau.spark.errors import WriteFailed
from moldau.spark.sink.commit_log import CommitLog
from moldau.spark.sink.committing import AlreadyDecided, Committer, Stopped
from moldau.spark.sink.options import SinkOptions
from moldau.spark.sink.recovery import recover
from moldau.spark.sink.sink import abort_staged
from moldau.spark.sink.stage import Stage, stage_rows
from moldau.spark.sink.staged import BatchName, Staged, commit_by
from moldau.spark.sink.staging_settings import StagingSettings
from moldau.testing import Broker
from tests.broker.wire_client import inside
from tests.spark.sink.staging import decide, put, stage, staged, staging, values
from tests.spark.topics import fresh_topic


@pytest.mark.parametrize("gives_up", [False, True])
def test_a_task_that_ends_after_its_write_aborts_what_it_staged(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, *, gives_up: bool,
) -> None:  # fmt: skip
    """The driver has decided without it, or has given the write up, and looks for no more."""
    batch = BatchName(query, query, 0, is_single=True)
    other = staged(settings, batch, topic, "a")

    def rows() -> Iterator[pa.RecordBatch]:
        # The task has an identity, but no transaction yet that anybody could find.
        if gives_up:
            abort_staged(settings, batch)
        else:
            commit_by(committer, [other])
        yield pa.RecordBatch.from_pydict({"value": pa.array(["b"])})

    frame = StructType([StructField("value", StringType())])
    options = SinkOptions.parse(
        {"kafka.bootstrap.servers": moldau_session_broker.bootstrap, "topic": topic}, frame
    )
    with pytest.raises(WriteFailed):
        stage_rows(replace(options, staging=settings), batch, rows())
    assert committer.ongoing(query) == []
    assert values(moldau_session_broker, topic) == ([] if gives_up else ["a"])


def test_what_a_killed_task_had_sent_is_refused_when_its_write_was_given_up(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str,
) -> None:  # fmt: skip
    batch = BatchName(query, query, 0, is_single=True)
    task = Stage(settings)
    opened = task.open(batch)
    assert opened is not None
    abort_staged(settings, batch)
    # It would have been killed by now; the broker gets what it sent all the same.
    with pytest.raises(PeerError):  # noqa: PT012
        opened.put(topic, pa.RecordBatch.from_pydict({"value": pa.array(["late"])}))
        opened.flush()
    task.close()
    assert committer.ongoing(query) == []
    assert values(moldau_session_broker, topic) == []


@pytest.mark.parametrize("is_single", [True, False])
@pytest.mark.parametrize("when", ["before its claim", "after its claim", "after its identity"])
def test_a_task_that_begins_while_its_write_fails_leaves_nothing_open(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, when: str, monkeypatch: pytest.MonkeyPatch, *, is_single: bool,
) -> None:  # fmt: skip
    """The driver does not wait for it, and Spark kills it before it comes to its end."""
    batch = BatchName(query, query, 0, is_single=is_single)
    begin = Coordinators.begin

    def beginning(self: Coordinators, *given: Any, **named: Any) -> PreparedTransaction:
        if when == "after its claim":
            abort_staged(settings, batch)
        begun = begin(self, *given, **named)
        if when == "after its identity":
            abort_staged(settings, batch)
        return begun

    monkeypatch.setattr(Coordinators, "begin", beginning)
    if when == "before its claim":
        abort_staged(settings, batch)
    with pytest.raises(Stopped):
        stage(settings, batch, topic, "late")
    assert committer.ongoing(query) == []
    assert values(moldau_session_broker, topic) == []


def test_a_late_attempt_at_a_batch_that_is_decided_leaves_nothing_open(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    batch = BatchName(query, "run", 0)
    tasks = [staged(settings, batch, topic, "a")]
    begin = Coordinators.begin

    def beginning(self: Coordinators, *given: Any, **named: Any) -> PreparedTransaction:
        commit_by(committer, tasks)
        return begin(self, *given, **named)

    monkeypatch.setattr(Coordinators, "begin", beginning)
    with pytest.raises(AlreadyDecided):
        stage(settings, batch, topic, "a")
    assert committer.ongoing(query) == []
    assert values(moldau_session_broker, topic) == ["a"]


def test_a_write_that_failed_can_run_again_under_its_name(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str,
) -> None:  # fmt: skip
    failed = BatchName(query, "failed", 0)
    staged(settings, failed, topic, "a")
    abort_staged(settings, failed)
    commit_by(committer, [staged(settings, BatchName(query, "again", 0), topic, "a")])
    assert values(moldau_session_broker, topic) == ["a"]


@pytest.mark.parametrize("is_single", [True, False])
def test_a_write_that_fails_after_its_decision_is_committed_by_the_next(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, *, is_single: bool,
) -> None:  # fmt: skip
    """Spark has a write aborted whose commit failed, also if it failed between two ends."""
    batch = BatchName(query, query, 0, is_single=is_single)
    decide(committer, batch, staged(settings, batch, topic, "a"))
    abort_staged(settings, batch)
    other = query if not is_single else f"{query}-other"
    commit_by(committer, [staged(settings, BatchName(other, "next", 1), topic, "b")])
    assert values(moldau_session_broker, topic) == ["a", "b"]


def test_a_straggler_leaves_the_ids_of_the_next_batch_alone(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str,
) -> None:  # fmt: skip
    """An attempt at a batch that is over begins in a worker that has staged rows of the next."""
    process = Stage(settings)
    over, batch = BatchName(query, "run", 0), BatchName(query, "run", 1)
    first = put(process, over, topic, "a")
    commit_by(committer, [first])
    second = put(process, batch, topic, "b")
    assert second.transaction.id == first.transaction.id
    with pytest.raises(AlreadyDecided):
        put(process, over, topic, "late")
    commit_by(committer, [second])
    process.close()
    assert values(moldau_session_broker, topic) == ["a", "b"]


def set_epoch(broker: Broker, id: str, epoch: int) -> None:
    """Let the producer of a transactional id have had that many epochs."""

    def change(server: Server) -> None:
        shard = server.transactions.shards.find(id)
        held = shard.by_id[id]  # type: ignore[union-attr]
        assert held.value is not None
        producer = Identity(held.value.producer.producer_id, epoch)
        held.value = changed(held.value, producer=producer)

    inside(broker, change)


@pytest.mark.parametrize("epoch", [LAST_CLIENT_EPOCH - 1, LAST_CLIENT_EPOCH])
def test_a_transaction_is_ended_again_by_the_identity_that_staged_it(
    moldau_broker: Broker, query: str, epoch: int
) -> None:
    """FLINK-40689: the first end raises the epoch, or brings another producer id, and its answer
    is lost with the driver. What the decision has is the identity from before."""
    topic = fresh_topic(moldau_broker, partitions=2)
    settings = staging(moldau_broker)
    process = Stage(settings)
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        committer = Committer(cluster)
        first = put(process, BatchName(query, "run", 0), topic, "a")
        commit_by(committer, [first])
        set_epoch(moldau_broker, first.transaction.id, epoch - 1)
        batch = BatchName(query, "run", 1)
        second = put(process, batch, topic, "b")
        assert second.transaction == first.transaction._replace(epoch=epoch)
        decide(committer, batch, second)
        (code,) = committer.coordinators.end([second.transaction], commits=True).values()
        assert code == 0
    process.close()
    # The coordinator is loaded anew, too.
    moldau_broker.stop()
    moldau_broker.start()
    assert stage(settings, BatchName(query, "next", 1), topic, "b") is None
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        after = staged(settings, BatchName(query, "next", 2), topic, "c")
        commit_by(Committer(cluster), [after])
    assert values(moldau_broker, topic) == ["a", "b", "c"]


def test_what_was_staged_by_a_run_that_is_superseded_holds_no_reader_back(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str,
) -> None:  # fmt: skip
    """FLINK-40626: staged transactions of earlier attempts were left open, and pinned the last
    stable offset. The next run has fewer tasks, and other transactional ids."""
    for run in ("first", "second"):
        for value in "abc":
            staged(settings, BatchName(query, run, 0), topic, value)
    assert len(committer.ongoing(query)) == 6
    commit_by(committer, [staged(settings, BatchName(query, "third", 0), topic, "a", "b", "c")])
    assert committer.ongoing(query) == []
    assert values(moldau_session_broker, topic) == ["a", "b", "c"]


@pytest.mark.parametrize("finisher", ["its driver", "another query", "recovery"])
def test_a_task_that_begins_after_the_end_of_a_single_write_stages_nothing(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, finisher: str,
) -> None:  # fmt: skip
    """A speculative attempt whose Python starts late. Nobody looks for what it would stage."""
    batch = BatchName(query, query, 0, is_single=True)
    task = staged(settings, batch, topic, "a")
    if finisher == "its driver":
        commit_by(committer, [task])
    else:
        decide(committer, batch, task)
    if finisher == "another query":
        commit_by(committer, [staged(settings, BatchName(f"{query}-b", "b", 0), topic, "b")])
    if finisher == "recovery":
        with Cluster(settings.bootstrap, settings.peer) as cluster:
            recover(cluster, older_than_ms=3_600_000, query=query)
    with pytest.raises(Stopped):
        stage(settings, batch, topic, "late")
    assert committer.ongoing(query, with_begun=True) == []
    assert query not in committer.log.read().queries


def test_a_task_that_begins_after_recovery_forgot_its_write_stages_nothing(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str,
) -> None:  # fmt: skip
    batch = BatchName(query, query, 0, is_single=True)
    task = staged(settings, batch, topic, "a")
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        recover(cluster, older_than_ms=-1, query=query)
    assert query not in committer.log.read().queries
    with pytest.raises(Stopped):
        stage(settings, batch, topic, "late")
    with pytest.raises(Stopped):
        commit_by(committer, [task])
    assert committer.ongoing(query) == []
    assert values(moldau_session_broker, topic) == []


@pytest.mark.parametrize("is_single", [True, False])
def test_a_decision_that_lands_after_its_write_was_given_up_does_not_count(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, *, is_single: bool,
) -> None:  # fmt: skip
    """Its append hung at a leader that was frozen; Spark had the write aborted, all of it."""
    batch = BatchName(query, query, 0, is_single=is_single)
    task = staged(settings, batch, topic, "a")
    abort_staged(settings, batch)
    decide(committer, batch, task)
    assert committer.read(query).last is None
    if not is_single:
        again = staged(settings, BatchName(query, "again", 0), topic, "a")
        commit_by(committer, [again])
        assert values(moldau_session_broker, topic) == ["a"]


def test_a_run_that_has_taken_over_is_left_alone_by_the_failure_of_the_last(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The word of the failure was on its way when the next run claimed the query."""
    failing, next_run = BatchName(query, "failing", 0), BatchName(query, "next", 0)
    staged(settings, failing, topic, "a")
    tasks: list[Staged] = []
    append = CommitLog.append

    def late(self: CommitLog, *given: Any) -> None:
        if not tasks:
            monkeypatch.undo()
            tasks.append(staged(settings, next_run, topic, "a"))
        append(self, *given)

    monkeypatch.setattr(CommitLog, "append", late)
    abort_staged(settings, failing)
    commit_by(committer, tasks)
    assert values(moldau_session_broker, topic) == ["a"]
    assert committer.ongoing(query) == []
