"""Exactly once against Apache Kafka itself; no Spark."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.peer.cluster import Cluster
from moldau.spark.sink.committing import Committer, Fenced, TransactionLost
from moldau.spark.sink.recovery import recover
from moldau.spark.sink.staged import BatchName, commit_by
from moldau.testing.waiting import until
from tests.spark.sink.staging import decide, stage, staged, staging, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@dataclass(frozen=True)
class Kafka:
    bootstrap: str


@pytest.fixture
def kafka(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


@pytest.fixture
def topic(kafka: Kafka) -> str:
    name = f"moldau-sink-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(60)
    return name


def test_rows_are_committed_once_through_restarts_and_zombies(kafka: Kafka, topic: str) -> None:
    settings = staging(kafka)
    query = f"kafka-{topic}"
    first = BatchName(query, "first", 0)
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        committer = Committer(cluster)
        tasks = [staged(settings, first, topic, "a"), staged(settings, first, topic, "b")]
        assert not any(each.is_two_phase for each in tasks)
        decide(committer, first, *tasks, is_two_phase=False)
        assert list(committer.coordinators.end([tasks[0].transaction], commits=True).values()) == [
            0
        ]
        # The next life of the driver finishes it, and sweeps what is left of the first.
        assert stage(settings, BatchName(query, "second", 0), topic, "a", "b") is None
        second = BatchName(query, "second", 1)
        staged(settings, second, topic, "c")
        commit_by(committer, [staged(settings, second, topic, "c")])
        with pytest.raises(Fenced):
            stage(settings, BatchName(query, "first", 1), topic, "c")
        until(lambda: values(kafka, topic) == ["a", "b", "c"])
        assert committer.ongoing(query) == []


def test_a_decided_transaction_that_timed_out_is_named(kafka: Kafka, topic: str) -> None:
    settings = staging(kafka)
    query = f"kafka-{topic}"
    batch = BatchName(query, "run", 0)
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        committer = Committer(cluster)
        lost = staged(replace(settings, timeout_ms=1000), batch, topic, "a")
        decide(committer, batch, lost, is_two_phase=False)
        # Kafka looks for such every ten seconds, unless it is told otherwise.
        until(lambda: committer.ongoing(query) == [], within_s=60)
        with pytest.raises(TransactionLost, match=lost.transaction.id):
            stage(settings, BatchName(query, "second", 0), topic, "a")
        (outcome,) = recover(cluster, older_than_ms=0, query=query, gives_up=True)
        assert outcome.given_up == (lost.transaction.id,)
        commit_by(committer, [staged(settings, BatchName(query, "third", 1), topic, "b")])
        until(lambda: values(kafka, topic) == ["b"])
