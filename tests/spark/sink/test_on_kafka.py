"""Exactly once against Apache Kafka itself, where one is running; no Spark.

Name it in MOLDAU_TEST_KAFKA_BOOTSTRAP (HOST:PORT), 4.0 or newer.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.peer.cluster import Cluster
from moldau.spark.sink.committing import Committer, Fenced, TransactionLost
from moldau.spark.sink.recovery import recover
from moldau.spark.sink.staged import BatchName, commit_by
from moldau.testing.waiting import until
from tests.spark.sink.staging import decide, stage, staged, staging, values

BOOTSTRAP = os.environ.get("MOLDAU_TEST_KAFKA_BOOTSTRAP", "")

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not BOOTSTRAP, reason="MOLDAU_TEST_KAFKA_BOOTSTRAP names no Apache Kafka to test against"
    ),
]


class Kafka:
    bootstrap = BOOTSTRAP


@pytest.fixture
def topic() -> str:
    name = f"moldau-sink-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(60)
    return name


def test_rows_are_committed_once_through_restarts_and_zombies(topic: str) -> None:
    settings = staging(Kafka())
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
        until(lambda: values(Kafka(), topic) == ["a", "b", "c"])
        assert committer.ongoing(query) == []


def test_a_decided_transaction_that_timed_out_is_named(topic: str) -> None:
    settings = staging(Kafka())
    query = f"kafka-{topic}"
    batch = BatchName(query, "run", 0)
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        committer = Committer(cluster)
        lost = staged(replace(settings, timeout_ms=1000), batch, topic, "a")
        decide(committer, batch, lost, is_two_phase=False)
        # Kafka looks every ten seconds.
        until(lambda: committer.ongoing(query) == [], within_s=60)
        with pytest.raises(TransactionLost, match=lost.transaction.id):
            stage(settings, BatchName(query, "second", 0), topic, "a")
        (outcome,) = recover(cluster, older_than_ms=0, query=query, gives_up=True)
        assert outcome.given_up == (lost.transaction.id,)
        commit_by(committer, [staged(settings, BatchName(query, "third", 1), topic, "b")])
        until(lambda: values(Kafka(), topic) == ["b"])
