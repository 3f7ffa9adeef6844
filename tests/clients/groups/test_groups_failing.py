"""Members and brokers that go away: somebody else goes on where they stopped."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest

from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.clients.groups.members import (
    PATIENCE_S,
    AioMember,
    ConfluentMember,
    ConsumerProtocolMember,
    Flow,
    KafkaPythonMember,
    Ledger,
    Member,
    topic_of,
)
from tests.processes import started

SHORT_SESSION_MS = 3_000

# A consumer that takes partitions, says so, and then reads until it is killed.
DOOMED = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({
    "bootstrap.servers": sys.argv[1], "group.id": "g", "auto.offset.reset": "earliest",
    "log_level": 2,
    **({"group.protocol": "consumer"} if sys.argv[2] == "consumer" else {
        "heartbeat.interval.ms": 100, "session.timeout.ms": int(sys.argv[2]),
        "partition.assignment.strategy": "range",
    }),
})
def assigned(consumer, partitions):
    print(*sorted(each.partition for each in partitions), flush=True)
consumer.subscribe(["t"], on_assign=assigned)
while True:
    consumer.poll(0.1)
"""


@contextmanager
def doomed(broker: Broker, kind: str = str(SHORT_SESSION_MS)) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", DOOMED, broker.bootstrap, kind]
    with started(command, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_partitions_of_a_killed_member_are_taken_over() -> None:
    ledger = Ledger()
    with topic_of(4) as broker, doomed(broker) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline().split() == ["0", "1", "2", "3"]
        with ConfluentMember(broker, ledger, "heir"):
            until(lambda: len(ledger.owned_by("heir")) == 2, "both share")
            victim.kill()
            # Some more than the session, for a busy machine.
            until(lambda: ledger.is_shared_by(4, "heir"), "the heir has all")
    ledger.check()


def test_the_partitions_of_a_killed_member_of_the_new_protocol_are_taken_over() -> None:
    ledger = Ledger()
    with (
        topic_of(4, group_consumer_session_timeout_ms=SHORT_SESSION_MS) as broker,
        doomed(broker, "consumer") as victim,
    ):
        assert victim.stdout is not None
        assert victim.stdout.readline().split() == ["0", "1", "2", "3"]
        with ConsumerProtocolMember(broker, ledger, "heir"):
            until(lambda: len(ledger.owned_by("heir")) == 2, "both share")
            victim.kill()
            until(lambda: ledger.is_shared_by(4, "heir"), "the heir has all")
    ledger.check()


@pytest.mark.parametrize("kind", [ConfluentMember, KafkaPythonMember, AioMember])
def test_reading_goes_on_where_it_stopped_after_a_restart_of_the_consumer(
    kind: type[Member],
) -> None:
    ledger = Ledger()
    with topic_of(3) as broker:
        flow = Flow(broker, 3)
        for _ in range(3):
            flow.write(300)
            with kind(broker, ledger, "reader"):
                until(lambda: len(ledger.handled) == len(flow.written), "all is handled")
    ledger.check()
    assert ledger.handled == flow.written


@pytest.mark.parametrize(
    "kind", [ConfluentMember, ConsumerProtocolMember, KafkaPythonMember, AioMember]
)
def test_reading_goes_on_where_it_stopped_after_a_restart_of_the_broker(
    kind: type[Member],
) -> None:
    ledger = Ledger()
    with topic_of(3) as broker:
        flow = Flow(broker, 3)
        flow.write(300)
        with kind(broker, ledger, "reader"):
            until(lambda: len(ledger.handled) == 300, "the first are handled")
            broker.stop()
            broker.start()
            flow.write(300)
            until(lambda: len(ledger.handled) == 600, "the others are handled, too")
        flow.write(300)
        with kind(broker, ledger, "successor"):
            until(lambda: len(ledger.handled) == 900, "a successor goes on")
    ledger.check()
    assert ledger.handled == flow.written


def test_a_static_member_that_restarts_gets_its_partitions_back_and_disturbs_nobody() -> None:
    ledger = Ledger()
    with topic_of(4) as broker:
        flow = Flow(broker, 4)

        def member(name: str) -> ConfluentMember:
            return ConfluentMember(broker, ledger, name, **{"group.instance.id": name})

        with member("one"):
            two = member("two").start()
            until(lambda: ledger.is_shared_by(4, "one", "two"), "both share")
            before = ledger.owned_by("one"), ledger.owned_by("two")
            revoked = ledger.revoked["one"]
            two.stop()
            assert ledger.owned_by("two") == set()
            with member("two"):
                until(lambda: ledger.is_shared_by(4, "one", "two"), "both share again")
                assert (ledger.owned_by("one"), ledger.owned_by("two")) == before
                assert ledger.revoked["one"] == revoked
                flow.write(400)
                until(lambda: len(ledger.handled) == 400, "all is handled")
    ledger.check()


def test_a_second_consumer_under_the_same_instance_id_fences_the_first() -> None:
    ledger = Ledger()
    with topic_of(2) as broker:
        first = ConfluentMember(broker, ledger, "first", **{"group.instance.id": "same"}).start()
        until(lambda: ledger.is_shared_by(2, "first"), "the first has all")
        second = ConfluentMember(
            broker, Ledger(), "second", **{"group.instance.id": "same"}
        ).start()
        until(lambda: first.errors, "the first is fenced")
        until(lambda: second.ledger.is_shared_by(2, "second"), "the second has all")
        assert first.errors[0].code() == confluent_kafka.KafkaError._FATAL
        first.stop()
        second.stop()


def test_a_consumer_without_membership_commits_and_goes_on() -> None:
    with topic_of(1) as broker:
        Flow(broker, 1).write(10)
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "alone",
            "enable.auto.commit": False,
        }
        place = confluent_kafka.TopicPartition("t", 0, 4)
        consumer = confluent_kafka.Consumer(settings)
        consumer.assign([place])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.offset() == 4
        consumer.commit(message=message, asynchronous=False)
        consumer.close()
        consumer = confluent_kafka.Consumer(settings)
        (found,) = consumer.committed([confluent_kafka.TopicPartition("t", 0)], PATIENCE_S)
        assert found.offset == 5
        consumer.close()
