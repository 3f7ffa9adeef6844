"""Recovery of what drivers left behind, in the orders that hurt: real broker, no Spark."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.peer.cluster import Cluster
from moldau.spark.sink.committing import Committer, Fenced
from moldau.spark.sink.recovery import recover
from moldau.spark.sink.stage import Stage
from moldau.spark.sink.staged import BatchName, commit_by
from moldau.spark.sink.staging_settings import StagingSettings
from moldau.testing import Broker
from tests.spark.sink.staging import decide, put, values


def test_a_batch_that_was_staged_under_ids_of_the_last_is_aborted(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str,
) -> None:  # fmt: skip
    process = Stage(settings)
    first = put(process, BatchName(query, "run", 0), topic, "a")
    commit_by(committer, [first])
    second = put(process, BatchName(query, "run", 1), topic, "b")
    process.close()
    assert first.transaction.id == second.transaction.id
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        (done,) = recover(cluster, older_than_ms=0, query=query)
    assert done.aborted == [second.transaction.id]
    assert committer.ongoing(query) == []
    with pytest.raises(Fenced):
        commit_by(committer, [second])
    assert values(moldau_session_broker, topic) == ["a"]


def test_a_driver_that_decides_while_recovery_looks_keeps_its_batch(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Recovery has seen its transaction open, and then claims the query: the decision counts."""
    batch = BatchName(query, "run", 0)
    process = Stage(settings)
    task = put(process, batch, topic, "a")
    process.close()
    claim = Committer.claim

    def claiming(self: Committer, *given: Any, **named: Any) -> Any:
        decide(committer, batch, task)
        return claim(self, *given, **named)

    monkeypatch.setattr(Committer, "claim", claiming)
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        done = recover(cluster, older_than_ms=0, query=query)
    assert [each.aborted for each in done if each.aborted] == []
    assert values(moldau_session_broker, topic) == ["a"]
