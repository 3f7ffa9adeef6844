"""Staging and committing by hand, in the orders that hurt: real broker, no Spark."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from moldau.peer.cluster import Cluster
from moldau.peer.connection import Connection
from moldau.peer.errors import ConnectionLost
from moldau.peer.ledger import Ledger
from moldau.spark.errors import OptionError
from moldau.spark.sink.commit_log import CommitLog
from moldau.spark.sink.committing import AlreadyDecided, Committer, Fenced, TransactionLost
from moldau.spark.sink.options import SinkOptions
from moldau.spark.sink.recovery import recover
from moldau.spark.sink.stage import Stage, stage_rows
from moldau.spark.sink.staged import BatchName, commit_by
from moldau.spark.sink.staging_settings import StagingSettings
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.spark.sink.staging import decide, stage, staged, staging, values
from tests.spark.topics import fresh_topic


def test_nothing_shows_before_the_decision_and_everything_after(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer,
    topic: str, query: str,
) -> None:  # fmt: skip
    batch = BatchName(query, "run", 0)
    tasks = [staged(settings, batch, topic, "a", "b"), staged(settings, batch, topic, "c")]
    assert values(moldau_session_broker, topic) == []
    commit_by(committer, tasks)
    assert values(moldau_session_broker, topic) == ["a", "b", "c"]


def test_a_batch_that_runs_again_finds_its_decision(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer,
    topic: str, query: str,
) -> None:  # fmt: skip
    first = BatchName(query, "first", 3)
    decide(
        committer, first, staged(settings, first, topic, "a"), staged(settings, first, topic, "b")
    )
    assert values(moldau_session_broker, topic) == []
    # The next life of the driver has other partitions, and finds that there is nothing to do.
    assert stage(settings, BatchName(query, "second", 3), topic, "a", "b") is None
    assert values(moldau_session_broker, topic) == ["a", "b"]
    next_batch = BatchName(query, "second", 4)
    commit_by(committer, [staged(settings, next_batch, topic, "c")])
    assert values(moldau_session_broker, topic) == ["a", "b", "c"]


def test_a_driver_that_died_between_two_ends_is_finished_by_the_next(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer,
    topic: str, query: str,
) -> None:  # fmt: skip
    batch = BatchName(query, "first", 0)
    tasks = [staged(settings, batch, topic, "a"), staged(settings, batch, topic, "b")]
    decide(committer, batch, *tasks)
    assert list(committer.coordinators.end([tasks[0].transaction], commits=True).values()) == [0]
    assert stage(settings, BatchName(query, "second", 0), topic, "a", "b") is None
    assert values(moldau_session_broker, topic) == ["a", "b"]


def test_what_was_staged_before_the_decision_is_gone_after_the_next(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer,
    topic: str, query: str,
) -> None:  # fmt: skip
    staged(settings, BatchName(query, "first", 0), topic, "a", "b")
    again = BatchName(query, "second", 0)
    tasks = [staged(settings, again, topic, "a"), staged(settings, again, topic, "b")]
    # An attempt that lost, of the same run: nobody told it, and its process was killed.
    staged(settings, again, topic, "b")
    commit_by(committer, tasks)
    assert values(moldau_session_broker, topic) == ["a", "b"]
    assert committer.ongoing(query) == []


def test_a_driver_that_wakes_up_after_another_took_over_writes_nothing(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer,
    topic: str, query: str,
) -> None:  # fmt: skip
    sleeps = BatchName(query, "sleeps", 0)
    tasks = [staged(settings, sleeps, topic, "a")]
    # It has read the log, and is about to append its decision.
    committer.read(query)
    lives = BatchName(query, "lives", 0)
    others = [staged(settings, lives, topic, "a")]
    with pytest.raises(Fenced, match="run lives has taken over"):
        commit_by(committer, tasks)
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        commit_by(Committer(cluster), others)
    assert values(moldau_session_broker, topic) == ["a"]
    # Nor can its tasks begin anything.
    with pytest.raises(Fenced):
        stage(settings, BatchName(query, "sleeps", 1), topic, "b")
    assert committer.ongoing(query) == []


def test_a_decision_that_lands_after_the_claim_of_another_does_not_count(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer,
    topic: str, query: str,
) -> None:  # fmt: skip
    sleeps = BatchName(query, "sleeps", 0)
    mine = staged(settings, sleeps, topic, "a")
    lives = BatchName(query, "lives", 0)
    others = [staged(settings, lives, topic, "a")]
    # The append was under way when the other claimed.
    decide(committer, sleeps, mine)
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        commit_by(Committer(cluster), others)
    assert values(moldau_session_broker, topic) == ["a"]
    assert committer.ongoing(query) == []
    found = committer.read(query).last
    assert found is not None
    assert found.run == "lives"


def test_the_second_of_two_writes_of_a_batch_at_once_is_refused(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer,
    topic: str, query: str,
) -> None:  # fmt: skip
    """Two threads of a `foreachBatch`, to one topic: both have staged when the first decides."""
    batch = BatchName(query, "run", 0)
    first, second = (staged(settings, batch, topic, value) for value in "ab")
    commit_by(committer, [first])
    with (
        Cluster(settings.bootstrap, settings.peer) as cluster,
        pytest.raises(AlreadyDecided, match="write the union of the frames"),
    ):
        commit_by(Committer(cluster), [second])
    # Nor if a later batch is decided by then.
    commit_by(committer, [staged(settings, batch._replace(number=1), topic, "c")])
    with pytest.raises(AlreadyDecided):
        commit_by(committer, [second])
    assert values(moldau_session_broker, topic) == ["a", "c"]
    assert committer.ongoing(query) == []


def test_lost_answers_change_nothing(
    moldau_session_broker: Broker, settings: StagingSettings, topic: str, query: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Every answer to a first try of each request is lost after the broker has done it."""
    batch = BatchName(query, "run", 0)
    lost: set[tuple[int, object]] = set()
    receive = Connection.receive

    def lossy(self: Connection, asked: object) -> object:
        answer = receive(self, asked)  # type: ignore[arg-type]
        api = asked[0]  # type: ignore[index]
        seen = (api, lossy.phase)  # type: ignore[attr-defined]
        if api in (Api.PRODUCE, Api.END_TXN, Api.INIT_PRODUCER_ID) and seen not in lost:
            lost.add(seen)
            self.close()
            raise ConnectionLost(self.address, "the answer is lost")
        return answer

    monkeypatch.setattr(Connection, "receive", lossy)
    tasks = []
    for number, value in enumerate("ab"):
        lossy.phase = number  # type: ignore[attr-defined]
        tasks.append(staged(settings, batch, topic, value))
    lossy.phase = "commit"  # type: ignore[attr-defined]
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        commit_by(Committer(cluster), tasks)
    monkeypatch.undo()
    assert len(lost) >= 5
    assert values(moldau_session_broker, topic) == ["a", "b"]
    assert stage(settings, BatchName(query, "next", 0), topic, "a", "b") is None


def test_a_decided_transaction_that_is_lost_stops_the_query_by_name(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer,
    topic: str, query: str,
) -> None:  # fmt: skip
    batch = BatchName(query, "run", 0)
    tasks = [staged(settings, batch, topic, "a"), staged(settings, batch, topic, "b")]
    decide(committer, batch, *tasks)
    committer.coordinators.abort([tasks[1].transaction.id])
    for run in ("second", "third"):
        with pytest.raises(TransactionLost, match=tasks[1].transaction.id):
            stage(settings, BatchName(query, run, 0), topic, "a", "b")
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        (outcome,) = recover(cluster, older_than_ms=0, query=query)
        assert outcome.lost is not None
        (outcome,) = recover(cluster, older_than_ms=0, query=query, gives_up=True)
        assert outcome.given_up == (tasks[1].transaction.id,)
    after = BatchName(query, "fourth", 1)
    assert stage(settings, BatchName(query, "fourth", 0), topic, "a", "b") is None
    commit_by(Committer(Cluster(settings.bootstrap, settings.peer)), [
        staged(settings, after, topic, "c")
    ])  # fmt: skip
    assert values(moldau_session_broker, topic) == ["a", "c"]


def test_a_single_write_is_finished_by_the_next_use_of_the_sink(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str,
) -> None:  # fmt: skip
    single = BatchName(f"{query}-single", f"{query}-single", 0, is_single=True)
    decide(committer, single, staged(settings, single, topic, "a"))
    other = BatchName(query, "run", 0)
    commit_by(committer, [staged(settings, other, topic, "b")])
    assert values(moldau_session_broker, topic) == ["a", "b"]
    committer.read("")
    assert single.query not in committer.log.commits.queries


@pytest.mark.parametrize("is_repeated", [False, True])
@pytest.mark.parametrize("finisher", ["another query", "recovery"])
def test_a_single_write_that_somebody_else_finished_is_known_to_be_committed(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, monkeypatch: pytest.MonkeyPatch, finisher: str, *, is_repeated: bool,
) -> None:  # fmt: skip
    """Its driver hears of its decision late, or has to append it once more."""
    single = BatchName(query, query, 0, is_single=True)
    task = staged(settings, single, topic, "a")
    staged(settings, single, topic, "an attempt that lost")
    append = Ledger._append_once

    def late(self: Ledger, batch: bytes) -> int:
        monkeypatch.undo()
        appended = append(self, batch)
        if finisher == "another query":
            stage(settings, BatchName(f"{query}-other", "run", 0), topic, "other")
        else:
            with Cluster(settings.bootstrap, settings.peer) as cluster:
                recover(cluster, older_than_ms=3_600_000, query=query)
        if is_repeated:
            raise ConnectionLost("broker", "the answer is lost")
        return appended

    monkeypatch.setattr(Ledger, "_append_once", late)
    commit_by(committer, [task])
    assert values(moldau_session_broker, topic) == ["a"]
    assert committer.ongoing(query) == []
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        assert query not in CommitLog(cluster).read().queries


def test_a_single_write_that_was_lost_and_given_up_meanwhile_has_failed(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    single = BatchName(query, query, 0, is_single=True)
    tasks = [staged(settings, single, topic, "a"), staged(settings, single, topic, "b")]
    append = Ledger._append_once

    def late(self: Ledger, batch: bytes) -> int:
        monkeypatch.undo()
        appended = append(self, batch)
        with Cluster(settings.bootstrap, settings.peer) as cluster:
            Committer(cluster).coordinators.abort([tasks[1].transaction.id])
            recover(cluster, older_than_ms=3_600_000, query=query, gives_up=True)
        return appended

    monkeypatch.setattr(Ledger, "_append_once", late)
    with pytest.raises(TransactionLost, match=tasks[1].transaction.id):
        commit_by(committer, tasks)
    assert values(moldau_session_broker, topic) == ["a"]


def test_recovery_commits_what_was_decided_and_aborts_the_rest(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str,
) -> None:  # fmt: skip
    died = BatchName(query, "run", 0)
    undecided = staged(settings, died, topic, "b")
    single = BatchName(f"{query}-single", f"{query}-single", 0, is_single=True)
    decide(committer, single, staged(settings, single, topic, "a"))
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        done = {each.query: each for each in recover(cluster, older_than_ms=3_600_000)}
        assert done[single.query].finished_batch == 0
        # It may be alive: it has not been at it for long.
        assert query not in done
        done = {each.query: each for each in recover(cluster, older_than_ms=0)}
        assert done[query].aborted == [undecided.transaction.id]
    # If it lives after all, it is told, and nothing is lost in silence.
    with pytest.raises(Fenced):
        commit_by(committer, [undecided])
    assert values(moldau_session_broker, topic) == ["a"]


def test_the_log_is_tidied_up(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer,
    topic: str, query: str,
) -> None:  # fmt: skip
    for number in range(5):
        batch = BatchName(query, f"run-{number // 2}", number)
        commit_by(committer, [staged(settings, batch, topic, str(number))])
    found = committer.read(query)
    # The last decision and its end, and the one before, which goes with the next.
    assert len(found.current) + len(found.garbage) <= 4
    assert len(found.claims) == 3


def test_transactional_ids_are_used_again(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer,
    topic: str, query: str,
) -> None:  # fmt: skip
    process = Stage(settings)
    ids: list[set[str]] = []
    for number in range(3):
        batch = BatchName(query, "run", number)
        tasks = []
        for value in "ab":
            opened = process.open(batch)
            assert opened is not None
            opened.put(topic, pa.RecordBatch.from_pydict({"value": [f"{value}{number}"]}))
            opened.flush()
            tasks.append(process.staged(batch, opened))
        ids.append({each.transaction.id for each in tasks})
        assert len(ids[-1]) == 2
        commit_by(committer, tasks)
    assert ids[0] == ids[1] == ids[2]
    process.close()
    assert values(moldau_session_broker, topic) == ["a0", "a1", "a2", "b0", "b1", "b2"]


@pytest.mark.moldau(
    {
        "transaction.two.phase.commit.enable": False,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 50,
    }
)
def test_without_two_phases_a_decided_transaction_that_timed_out_is_named(
    moldau_broker: Broker, query: str
) -> None:
    """As on Apache Kafka, whose transactions all time out."""
    topic = fresh_topic(moldau_broker, partitions=2)
    settings = staging(moldau_broker)
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        committer = Committer(cluster)
        good = staged(settings, BatchName(query, "run", 0), topic, "a")
        assert not good.is_two_phase
        commit_by(committer, [good])
        batch = BatchName(query, "run", 1)
        lost = staged(replace(settings, timeout_ms=1_500), batch, topic, "b")
        decide(committer, batch, lost, is_two_phase=False)
        until(lambda: committer.ongoing(query) == [])
    for run in ("second", "third"):
        with pytest.raises(TransactionLost, match=lost.transaction.id):
            stage(settings, BatchName(query, run, 1), topic, "b")
    assert values(moldau_broker, topic) == ["a"]


def test_a_broker_that_cannot_is_an_error_if_exactly_once_was_asked_for(
    moldau_session_broker: Broker, topic: str, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that finalizes no `transaction.version`, as Kafka before 4.0."""
    monkeypatch.setattr(Connection, "level_of", lambda self, feature: 0)
    rows = [pa.RecordBatch.from_pydict({"value": ["a"]})]
    batch = BatchName(query, "run", 0)
    schema = StructType([StructField("value", StringType())])
    given = {"kafka.bootstrap.servers": moldau_session_broker.bootstrap, "topic": topic}
    assert stage_rows(SinkOptions.parse(given, schema), batch, rows) is None
    wanted = SinkOptions.parse(given | {"exactlyOnce": "true"}, schema)
    with pytest.raises(OptionError, match="exactlyOnce: the brokers do not support this"):
        stage_rows(wanted, batch, rows)
