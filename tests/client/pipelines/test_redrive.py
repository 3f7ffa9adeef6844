"""Redrives of pipelines: each record goes back once, whatever was interrupted and when."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from moldau.client.errors import ClientError
from moldau.client.pipelines.letters import Origin, PipelineLetter
from moldau.client.pipelines.redrive import TOPIC, PipelineRedrive, RedrivePlan
from moldau.peer.cluster import Cluster
from moldau.peer.view import parse_bootstrap
from moldau.testing import Broker
from tests.broker.wire_client import fresh_name


@dataclass
class Dead:
    """A topic, and the topic of its dead letters."""

    broker: Broker
    topic: str
    letters: str

    def bury(self, offsets: Iterable[int], *, partition: int = 0, reason: str = "bad") -> None:
        """Write letters, as a task of Spark would."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for offset in offsets:
            told: list[tuple[str, str | bytes | None]] = [
                ("own", b"x"),
                ("moldau.origin.topic", self.topic),
                ("moldau.origin.topic_id", "1"),
                ("moldau.origin.partition", str(partition)),
                ("moldau.origin.offset", str(offset)),
                ("moldau.reason", reason),
                ("moldau.source", "events"),
            ]
            producer.produce(self.letters, str(offset), key=f"k{offset}", headers=told)
        assert producer.flush(60) == 0

    def quarantine(self, *values: str, own: dict[str, str] | None = None) -> None:
        """Write records as a broker would that has checked them: they have no offset of origin."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for value in values:
            told: list[tuple[str, str | bytes | None]] = [
                *(own or {}).items(),
                ("own", b"x"),
                ("moldau.origin.topic", self.topic),
                ("moldau.origin.partition", "1"),
                ("moldau.reason", "no value of its schema"),
            ]
            producer.produce(self.letters, value, headers=told)
        assert producer.flush(60) == 0

    @contextmanager
    def redrive(self, **more: Any) -> Iterator[tuple[PipelineRedrive, Cluster]]:
        bootstrap = self.broker.bootstrap
        with (
            Cluster(parse_bootstrap(bootstrap)) as cluster,
            PipelineRedrive(self.letters, bootstrap=bootstrap, **more) as work,
        ):
            yield work, cluster

    def redriven(self, **more: Any) -> tuple[RedrivePlan, int]:
        with self.redrive(**more) as (work, cluster):
            work.claim(cluster)
            plan = work.plan(cluster)
            return plan, work.move()

    def back(self) -> Counter[tuple[int, bytes | None]]:
        """What is committed in the topic, by partition and value."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": "check",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(self.topic, index, 0) for index in range(2)])
        found: Counter[tuple[int, bytes | None]] = Counter()
        ended: set[int | None] = set()
        try:
            while len(ended) < 2:
                message = consumer.poll(30)
                assert message is not None
                error = message.error()
                if error is not None:
                    assert error.name() == "_PARTITION_EOF"
                    ended.add(message.partition())
                    continue
                assert message.headers() == [("own", b"x")]
                found[message.partition() or 0, message.value()] += 1
        finally:
            consumer.close()
        return found


@pytest.fixture
def dead(moldau_session_broker: Broker) -> Dead:
    topic = fresh_name("orders")
    letters = f"{topic}-dead-letters"
    moldau_session_broker.create_topic(topic, partitions=2)
    moldau_session_broker.create_topic(letters)
    return Dead(moldau_session_broker, topic, letters)


def test_letters_go_back_to_their_partition_once_and_stay_where_they_are(dead: Dead) -> None:
    dead.bury(range(3))
    dead.bury([7], partition=1, reason="worse")
    # The same record, set aside by another pipeline.
    dead.bury([2])
    plan, moved = dead.redriven()
    assert plan.letters == {(dead.topic, "bad"): 3, (dead.topic, "worse"): 1}
    assert (plan.moved_before, moved) == (1, 4)
    expected = Counter({(0, b"0"): 1, (0, b"1"): 1, (0, b"2"): 1, (1, b"7"): 1})
    assert dead.back() == expected
    again, moved = dead.redriven()
    assert (again.count, again.moved_before, moved) == (0, 5, 0)
    dead.bury([9])
    assert dead.redriven()[1] == 1
    assert dead.back() == expected + Counter({(0, b"9"): 1})


def test_records_that_brokers_have_set_aside_go_back_once_each(dead: Dead) -> None:
    # Two that are alike are two records: neither has ever been written.
    dead.quarantine("a", "a", "b")
    # A header that such a record had of its own says nothing of where it is.
    dead.quarantine("c", "d", own={"moldau.origin.offset": "0"})
    dead.bury([0])
    plan, moved = dead.redriven(choose=lambda letter: letter.value == b"b")
    assert (moved, plan.letters) == (1, {(dead.topic, "no value of its schema"): 1})
    plan, moved = dead.redriven()
    assert (moved, plan.moved_before) == (5, 1)
    expected = Counter({(1, b"a"): 2, (1, b"b"): 1, (1, b"c"): 1, (1, b"d"): 1, (0, b"0"): 1})
    assert dead.back() == expected
    assert dead.redriven()[1] == 0
    # A topic that was created again has other records at the same places.
    admin = AdminClient({"bootstrap.servers": dead.broker.bootstrap})
    admin.delete_topics([dead.letters])[dead.letters].result(30)
    dead.broker.create_topic(dead.letters)
    dead.quarantine("e")
    assert dead.redriven()[1] == 1
    assert dead.back() == expected + Counter({(1, b"e"): 1})


def test_only_those_that_are_chosen_are_moved_with_the_values_that_an_edit_gives(
    dead: Dead,
) -> None:
    dead.bury(range(6))

    def edit(letters: Iterable[PipelineLetter]) -> list[bytes | None]:
        return [
            None if each.origin.offset == 4 else b"<%b>" % (each.value or b"") for each in letters
        ]

    def is_even(letter: PipelineLetter) -> bool:
        return letter.origin.offset % 2 == 0

    plan, moved = dead.redriven(choose=is_even, edit=edit)
    assert (plan.count, plan.unedited, moved) == (2, 1, 2)
    assert [value for _, value in plan.examples] == [b"<0>", b"<2>"]
    assert dead.back() == Counter({(0, b"<0>"): 1, (0, b"<2>"): 1})
    # What was left is still there to be moved.
    assert dead.redriven()[1] == 4


def test_a_plan_moves_nothing_and_a_move_needs_a_claim(dead: Dead) -> None:
    dead.bury(range(2))
    with dead.redrive() as (work, cluster):
        assert work.plan(cluster).count == 2
        with pytest.raises(ClientError, match="claim the redrive"):
            work.move()
    assert not dead.back()


def test_of_two_redrives_at_once_the_first_fails_and_nothing_is_moved_twice(dead: Dead) -> None:
    dead.bury(range(4))
    with dead.redrive() as (first, cluster):
        first.claim(cluster)
        assert first.plan(cluster).count == 4
        assert dead.redriven()[1] == 4
        with pytest.raises(ClientError):
            first.move()
    assert sum(dead.back().values()) == 4
    assert set(dead.back().values()) == {1}


# Writes all messages of its transaction, and is killed before the commit, or after it.
CRASHING = """
import os, sys
from moldau.client.letters.mover import Mover
from moldau.client.pipelines.redrive import PipelineRedrive
from moldau.peer.cluster import Cluster
from moldau.peer.view import parse_bootstrap

bootstrap, letters, when = sys.argv[1:]
commit = Mover.commit

def crashing(self, write):
    def writing():
        write()
        assert self.producer.flush(60) == 0
        if when == "before":
            os._exit(9)
    commit(self, writing)
    os._exit(9)

Mover.commit = crashing
work = PipelineRedrive(letters, bootstrap=bootstrap)
cluster = Cluster(parse_bootstrap(bootstrap))
work.claim(cluster)
work.plan(cluster)
work.move()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("when", "left"), [("before", 5), ("after", 0)])
def test_a_redrive_that_dies_around_its_commit_moves_each_record_once_in_the_end(
    dead: Dead, when: str, left: int
) -> None:
    dead.bury(range(5))
    words = [sys.executable, "-c", CRASHING, dead.broker.bootstrap, dead.letters, when]
    assert subprocess.run(words, timeout=100, check=False).returncode == 9
    plan, moved = dead.redriven()
    assert (plan.count, moved) == (left, left)
    assert dead.back() == Counter({(0, str(number).encode()): 1 for number in range(5)})


@pytest.mark.slow
def test_what_an_open_transaction_of_another_redrive_hides_is_waited_for(dead: Dead) -> None:
    dead.bury(range(3))
    bootstrap = dead.broker.bootstrap
    # So that the topic is there.
    assert dead.redriven(choose=lambda _: False)[1] == 0
    other = Producer({"bootstrap.servers": bootstrap, "transactional.id": fresh_name("other")})
    other.init_transactions(60)
    other.begin_transaction()
    other.produce(TOPIC, b"{}", key=Origin("another", "", 0, 0).key(), partition=0)
    assert other.flush(60) == 0
    begun = threading.Thread(target=other.commit_transaction, args=(60,))
    with dead.redrive() as (work, cluster):
        work.claim(cluster)
        begun.start()
        assert work.plan(cluster).count == 3
        assert work.move() == 3
    begun.join(60)
    # Records about our letters come after one that is open, and readers do not see them yet.
    hidden = Producer({"bootstrap.servers": bootstrap, "transactional.id": fresh_name("other")})
    hidden.init_transactions(60)
    hidden.begin_transaction()
    hidden.produce(TOPIC, b"{}", key=Origin("another", "", 0, 1).key(), partition=0)
    assert hidden.flush(60) == 0
    dead.bury([3])
    assert moved_meanwhile(dead) == 1
    timer = threading.Timer(1.0, hidden.abort_transaction, (60,))
    timer.start()
    plan, moved = dead.redriven()
    timer.join()
    assert (plan.moved_before, moved) == (4, 0)
    assert set(dead.back().values()) == {1}


def moved_meanwhile(dead: Dead) -> int:
    """Move one letter while another transaction is open, as one that began earlier would."""
    with dead.redrive() as (work, cluster):
        work.claim(cluster)
        # It had read what was moved before the other one began.
        work._moved = frozenset(Origin(dead.topic, "1", 0, number).key() for number in range(3))
        work._ranges = work._letter_topic.ranges()
        work._mover.require_topics(work._letter_topic.consumer, {dead.topic})
        return work.move()
