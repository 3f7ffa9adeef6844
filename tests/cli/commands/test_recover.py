"""`moldau transactions recover` against a real broker."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from moldau.peer.cluster import Cluster
from moldau.spark.sink.committing import Committer
from moldau.spark.sink.staged import BatchName, at_target
from moldau.testing import Broker
from tests.cli.conftest import Run
from tests.spark.sink.staging import decide, staged, staging, values
from tests.spark.topics import fresh_topic

pytestmark = pytest.mark.spark


def test_what_drivers_left_behind_is_ended(moldau: Run, moldau_session_broker: Broker) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker, partitions=2)
    settings = staging(broker)
    query = f"died of {topic}"
    died = BatchName(at_target(query, topic), "run", 7)
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        committer = Committer(cluster)
        decide(committer, died, staged(settings, died, topic, "a"))
        later = staged(settings, BatchName(f"later {topic}", "run", 0), topic, "b")
        words = ("transactions", "recover")
        (done,) = moldau(*words, "--query", query, "--json").json
        assert done == {
            "query": died.query, "finished_batch": 7, "aborted": [], "given_up": [], "lost": None,
            "refused": None,
        }  # fmt: skip
        assert "nothing to recover" in moldau(*words, "--query", query).err
        ended = moldau(*words, "--older-than", "0")
        assert (ended.status, f"aborted {later.transaction.id}" in ended.out) == (0, True)
        assert values(broker, topic) == ["a"]
        lost = BatchName(died.query, "another", 8)
        task = staged(settings, lost, topic, "c")
        decide(committer, lost, task)
        committer.coordinators.abort([task.transaction.id])
        ended = moldau(*words, "--query", query)
        assert (ended.status, task.transaction.id in ended.err) == (1, True)
        ended = moldau(*words, "--give-up", query)
        assert (ended.status, f"lost {task.transaction.id}" in ended.out) == (0, True)
        assert values(broker, topic) == ["a"]
