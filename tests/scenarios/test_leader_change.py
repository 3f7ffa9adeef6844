"""Leader changes: how librdkafka finds the new leader of a partition whose leader died."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import Producer

from moldau.testing import Cluster, Ensemble

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]


class Notes(logging.Handler):
    """All that a client's log said."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_a_producer_goes_straight_to_the_new_leader(ensemble: Ensemble) -> None:
    """A partition that is left without a broker in between waits a second for the next look."""
    notes = Notes()
    log = logging.getLogger("leader-change")
    log.setLevel(logging.DEBUG)
    log.addHandler(notes)
    log.propagate = False
    with Cluster(3, ensemble) as cluster:
        cluster.create_topic("t", 1, 3, min_insync_replicas=2)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "debug": "topic,broker"}, logger=log
        )
        for leader_dies in (False, True):
            if leader_dies:
                cluster.kill(cluster.leader_of("t"))
            producer.produce("t", b"x", partition=0)
            assert producer.flush(60) == 0
    moves = [line for line in notes.lines if "BRKDELGT" in line or "QRYLEADER" in line]
    assert any("broker is down" in line for line in moves), "the death went unnoticed"
    assert not [line for line in moves if "broker is internal" in line], moves
