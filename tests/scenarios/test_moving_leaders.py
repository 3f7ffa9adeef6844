"""Leaders change all the time, and brokers stall for moments.

So a client hears of a new leader before that one does, refusals and answers cross, and bytes leave
a broker after it has lost the lead. Before brokers waited for what was refused, this stored
messages twice in every other run of 40 s; before followers looked at the epoch of what they copy,
it left replicas that differed in every fourth.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from moldau.testing import Cluster, Ensemble
from moldau.wire.apis import Api
from tests.broker.wire_client import Client
from tests.scenarios import clients
from tests.scenarios.ledger import Wrong
from tests.scenarios.play import TOPIC, Play

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]

PARTITIONS = 8
SECONDS = 20
# What librdkafka says of errors, and of new epochs, in which it sends again what is in doubt.
SIGNS = ("encountered error", "ERRSEQ", "DRAIN", "bumped")


class Notes(logging.Handler):
    """What a producer's log said that matters here."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if any(sign in line for sign in SIGNS):
            self.lines.append(f"{record.created:.3f} {line}")


@contextmanager
def stalling(cluster: Cluster) -> Iterator[None]:
    """Brokers stop for moments, one at a time."""
    is_over = threading.Event()

    def stall() -> None:
        while not is_over.wait(random.uniform(0, 0.03)):
            broker = random.choice(cluster.brokers)
            cluster.freeze(broker)
            time.sleep(random.uniform(0.005, 0.06))
            cluster.thaw(broker)

    thread = threading.Thread(target=stall, name="stall", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def move_leaders(cluster: Cluster) -> None:
    """Other preferred leaders, and their election."""
    wanted = [
        {"partition_index": index, "replicas": random.sample(cluster.brokers, 3)}
        for index in range(PARTITIONS)
    ]
    host, port = cluster.address(random.choice(cluster.brokers)).split(":")
    with Client((host, int(port))) as client:
        topics = [{"name": TOPIC, "partitions": wanted}]
        client.ask(Api.ALTER_PARTITION_REASSIGNMENTS, 0, timeout=5000, topics=topics)
        every = [{"topic": TOPIC, "partitions": list(range(PARTITIONS))}]
        client.ask(Api.ELECT_LEADERS, 2, election_type=0, topic_partitions=every, timeout=5000)


def test_every_message_is_stored_once_and_replicas_agree(
    ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = Notes()
    log = logging.getLogger("moving-leaders")
    log.setLevel(logging.DEBUG)
    log.addHandler(notes)
    log.propagate = False

    def producer(conf: dict[str, Any]) -> Producer:
        more = {"debug": "eos,msg", "log_level": 7, "linger.ms": 0, "batch.num.messages": 2}
        return Producer({**conf, **more}, logger=log)

    monkeypatch.setattr(clients, "Producer", producer)
    try:
        with Cluster(3, ensemble) as cluster, Play(cluster, partitions=PARTITIONS) as play:
            play.go_on()
            deadline = time.monotonic() + SECONDS
            with stalling(cluster):
                while time.monotonic() < deadline:
                    move_leaders(cluster)
                    time.sleep(0.2)
                    play.ledger.check()
    except Wrong as problem:
        problem.add_note("The producer said last:\n" + "\n".join(notes.lines[-100:]))
        raise
