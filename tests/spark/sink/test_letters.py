"""Dead letters of attempts that die, race and come again: real broker, no Spark."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace as changed

from moldau.broker.server import Broker as Server
from moldau.peer.cluster import Cluster
from moldau.peer.coordinators import Coordinators
from moldau.spark.errors import WriteFailed
from moldau.spark.sink.letter_ranges import LetterRanges, Letters, LettersEnded, without
from moldau.spark.sink.staged_letters import Letter, Reading, StagedLetters, open_letters
from moldau.spark.source.ranges import OffsetRange
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.errors import Error
from tests.broker.wire_client import inside
from tests.spark.topics import fresh_topic, read_by_librdkafka

_scopes = itertools.count()


@pytest.fixture
def scope() -> str:
    return f"scope-{next(_scopes)}/source"


@pytest.fixture
def topic(moldau_session_broker: Broker) -> str:
    return fresh_topic(moldau_session_broker)


def attempt(
    broker: Broker, scope: str, topic: str, start: int, end: int, batch: int = 0
) -> StagedLetters:
    """A task that has read a range in which every record is bad, and has not ended."""
    reading = Reading(scope, batch, OffsetRange("origin", None, 0, start, end))
    letters = open_letters(broker.bootstrap, None, reading)
    assert letters is not None
    letters.send(topic, [Letter(n, None, b"%d" % n, [("h", b"v")]) for n in range(start, end)])
    return letters


def found(broker: Broker, topic: str) -> list[int]:
    return sorted(int(row["value"]) for row in read_by_librdkafka(broker, topic))


def decided(letters: StagedLetters) -> Letters:
    """As `flush`, but it dies before it commits."""
    assert letters._opened is not None
    letters._opened.flush()
    entry = letters._letters(letters._opened.transaction)
    letters._stage.committer.log.append([entry])
    return entry


def test_a_range_that_is_read_again_has_its_letters_once(
    moldau_session_broker: Broker, scope: str, topic: str
) -> None:
    broker = moldau_session_broker
    for _ in range(2):
        attempt(broker, scope, topic, 0, 4).flush()
    # After a restart the same records are read in other pieces, and new ones with them.
    for start, end in ((0, 2), (2, 7)):
        attempt(broker, scope, topic, start, end).flush()
    assert found(broker, topic) == list(range(7))


def test_the_first_of_two_attempts_wins(
    moldau_session_broker: Broker, scope: str, topic: str
) -> None:
    broker = moldau_session_broker
    one, other = (attempt(broker, scope, topic, 0, 3) for _ in range(2))
    other.flush()
    one.flush()
    assert found(broker, topic) == [0, 1, 2]


def test_an_attempt_that_overlaps_in_part_is_to_be_made_again(
    moldau_session_broker: Broker, scope: str, topic: str
) -> None:
    broker = moldau_session_broker
    one, other = attempt(broker, scope, topic, 0, 5), attempt(broker, scope, topic, 3, 8)
    one.flush()
    with pytest.raises(WriteFailed, match="checked again"):
        other.flush()
    other.discard()
    attempt(broker, scope, topic, 3, 8).flush()
    assert found(broker, topic) == list(range(8))


def test_letters_of_a_task_that_died_before_its_commit_are_committed_by_the_next(
    moldau_session_broker: Broker, scope: str, topic: str
) -> None:
    broker = moldau_session_broker
    decided(attempt(broker, scope, topic, 0, 3))
    assert found(broker, topic) == []
    attempt(broker, scope, topic, 0, 3).flush()
    assert found(broker, topic) == [0, 1, 2]


def test_letters_whose_transaction_is_lost_are_written_again(
    moldau_session_broker: Broker, scope: str, topic: str
) -> None:
    broker = moldau_session_broker
    died = attempt(broker, scope, topic, 0, 3)
    entry = decided(died)
    died._stage.committer.coordinators.abort([entry.transaction.id])
    for _ in range(2):
        attempt(broker, scope, topic, 0, 3).flush()
    assert found(broker, topic) == [0, 1, 2]


def expire(broker: Broker, id: str) -> None:
    """Let nobody have used a transactional id for very long."""

    def change(server: Server) -> None:
        shard = server.transactions.shards.find(id)
        held = shard.by_id[id]  # type: ignore[union-attr]
        assert held.value is not None
        held.value = changed(held.value, updated_ms=0)

    inside(broker, change)


@pytest.mark.moldau({"transaction.remove.expired.transaction.cleanup.interval.ms": 50})
def test_letters_whose_transaction_timed_out_and_expired_are_written_again(
    moldau_broker: Broker, scope: str
) -> None:
    """The pipeline was down for longer than the coordinator remembers."""
    topic = fresh_topic(moldau_broker)
    died = attempt(moldau_broker, scope, topic, 0, 3)
    entry = decided(died)
    with Cluster(died._stage.settings.bootstrap) as cluster:
        coordinators = Coordinators(cluster)
        coordinators.abort([entry.transaction.id])
        expire(moldau_broker, entry.transaction.id)
        unknown = {entry.transaction: Error.INVALID_PRODUCER_ID_MAPPING}
        until(lambda: coordinators.end([entry.transaction], commits=False) == unknown)
    for _ in range(2):
        attempt(moldau_broker, scope, topic, 0, 3).flush()
    assert found(moldau_broker, topic) == [0, 1, 2]


def test_old_entries_are_deleted(moldau_session_broker: Broker, scope: str, topic: str) -> None:
    broker = moldau_session_broker
    for batch in range(5):
        letters = attempt(broker, scope, topic, batch, batch + 1, batch)
        letters.flush()
    kept = letters._stage.committer.log.commits.letters.of(scope).counted
    assert [each.letters.batch for each in kept] == [3, 4]
    assert found(broker, topic) == list(range(5))


def test_what_is_left_of_ranges() -> None:
    assert without([(0, 10)], []) == ((0, 10),)
    assert without([(0, 10)], [(2, 4), (8, 20)]) == ((0, 2), (4, 8))
    assert without([(0, 3), (5, 6)], [(0, 6)]) == ()


def test_a_void_entry_makes_room_for_the_next() -> None:
    ranges = LetterRanges()
    lost, again = (
        Letters("s", "t", 0, ((0, 5),), 0, (name, 1, 0), 0)  # type: ignore[arg-type]
        for name in ("lost", "again")
    )
    ranges.apply(b"1", lost)
    ranges.apply(b"2", LettersEnded("s", lost.transaction, 0, is_void=True))
    ranges.apply(b"3", again)
    assert [each.letters for each in ranges.of("s").counted] == [again]
    for key in (b"1", b"2", b"3"):
        ranges.forget(key)
    assert ranges.scopes == {}
