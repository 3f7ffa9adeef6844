"""The copies of a ledger that is first used while a broker is away."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from moldau.peer import ledger as ledgers
from moldau.peer.cluster import Cluster as Asked
from moldau.peer.errors import Refused
from moldau.peer.ledger import Ledger
from moldau.peer.retries import PeerSettings
from moldau.peer.view import parse_bootstrap
from moldau.testing import Cluster, Ensemble

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def require(cluster: Cluster, topic: str) -> None:
    with Asked(parse_bootstrap(cluster.bootstrap), PeerSettings(first_backoff_s=0.01)) as asked:
        Ledger(asked, topic, {}, lambda key, value, offset: None).require()


def copies(cluster: Cluster, topic: str) -> int:
    cluster.wait_until_in_sync(topic)
    return len(cluster.view(0).partitions[topic, 0].replicas)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the ledger has warned of; a broker may say that the machine is busy."""
    return [each.getMessage() for each in caplog.records if each.name.startswith("moldau.peer")]


def test_a_ledger_has_copies_for_brokers_that_are_away_for_a_moment(
    ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ledgers, "_checked", set())
    caplog.set_level(logging.WARNING, "moldau.peer")
    create = Ledger._create
    waits: list[Callable[[], None]] = []

    def watched(self: Ledger, replicas: int) -> None:
        try:
            create(self, replicas)
        except Refused:
            if waits:
                waits.pop()()
            raise

    monkeypatch.setattr(Ledger, "_create", watched)
    with Cluster(3, ensemble) as cluster:
        cluster.create_topic("orders")
        cluster.stop(2)
        # A rolling restart: it comes back while the ledger is waited for.
        waits.append(lambda: cluster.start(2))
        require(cluster, "restarted")
        assert not waits
        assert copies(cluster, "restarted") == 3
        assert not told(caplog)
        cluster.stop(2)
        monkeypatch.setattr(ledgers, "_AWAY_S", 0.1)
        require(cluster, "gone")
        assert "topic 'gone' is created with 2 replicas" in caplog.text
        cluster.start(2)
        assert copies(cluster, "gone") == 2
        caplog.clear()
        require(cluster, "gone")
        assert "topic 'gone' has 2 replicas" in caplog.text
        cluster.create_topic("careless", replication_factor=3, min_insync_replicas=1)
        require(cluster, "careless")
        assert "topic 'careless' accepts writes with 1 replica in sync" in caplog.text
        for topic in ("gone", "careless", "restarted"):
            caplog.clear()
            require(cluster, topic)
            assert not told(caplog)
