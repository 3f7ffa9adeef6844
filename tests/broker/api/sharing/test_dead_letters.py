"""Dead letters of share groups: none is lost, whatever fails."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from moldau.broker.sharing import dead_letters
from moldau.broker.sharing.delivery import Dead
from moldau.log.errors import StorageError
from moldau.log.log import Log
from moldau.log.writer import Writer
from moldau.records.record import Record
from moldau.testing.waiting import until
from moldau.wire.errors import Error
from tests.broker.api.sharing.member import ACCEPT, REJECT, RELEASE, partition_of
from tests.broker.api.sharing.queues import Queue
from tests.broker.wire_client import inside, read_records


def test_rejected_records_become_dead_letters_with_the_reason(queue: Queue) -> None:
    dead = f"dlq.{queue.group}"
    queue.configure(errors_deadletterqueue_topic_name=dead, share_delivery_count_limit="2")
    queue.put(b"bad", b"slow", b"good")
    with queue.member() as member:
        assert member.take() == [(0, 2, 1)]
        said = member.acknowledge({0: [(0, 2, [REJECT, RELEASE, ACCEPT])]})
        assert not partition_of(said).error_code
        assert [r.value for r in letters(queue, dead)] == [b"bad"]
        assert member.take() == [(1, 1, 2)]
        said = member.acknowledge({0: [(1, 1, RELEASE)]})
        assert not partition_of(said).error_code
    first, second = letters(queue, dead)
    assert (first.value, second.value) == (b"bad", b"slow")
    assert dict(first.headers) == {
        "__dlq.errors.topic": queue.topic.encode(),
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"0",
        "__dlq.errors.group": queue.group.encode(),
        "__dlq.errors.delivery.count": b"1",
        "__dlq.errors.message": b"Offset rejected by client.",
    }
    headers = dict(second.headers)
    assert headers["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."
    assert headers["__dlq.errors.delivery.count"] == b"2"
    assert queue.start() == 3


def letters(queue: Queue, topic: str) -> list[Record]:
    return read_records(queue.client.fetch(topic, 0).records)


def test_dead_letters_that_cannot_be_written_keep_their_records_alive(queue: Queue) -> None:
    queue.configure(errors_deadletterqueue_topic_name="not-for-dead-letters")
    queue.put(b"bad")
    with queue.member() as member:
        assert member.take() == [(0, 0, 1)]
        refused = member.acknowledge({0: [(0, 0, REJECT)]})
        assert partition_of(refused).error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert queue.start() == 0
        queue.configure(errors_deadletterqueue_topic_name=f"dlq.{queue.group}")
        assert not partition_of(member.acknowledge({0: [(0, 0, REJECT)]})).error_code


def test_what_is_accepted_beside_an_unwritable_dead_letter_is_finished(queue: Queue) -> None:
    queue.configure(errors_deadletterqueue_topic_name="not-for-dead-letters")
    queue.put(b"good", b"bad", b"fine")
    with queue.member() as member:
        assert member.take() == [(0, 2, 1)]
        refused = member.acknowledge({0: [(0, 2, [ACCEPT, REJECT, ACCEPT])]})
        assert partition_of(refused).error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert queue.start() == 1
        dead = f"dlq.{queue.group}"
        queue.configure(errors_deadletterqueue_topic_name=dead)
        assert not partition_of(member.acknowledge({0: [(1, 1, REJECT)]})).error_code
    assert [r.value for r in letters(queue, dead)] == [b"bad"]
    assert queue.start() == 3


def test_an_acknowledgement_that_failed_in_part_can_be_said_again(queue: Queue) -> None:
    queue.configure(errors_deadletterqueue_topic_name="not-for-dead-letters")
    queue.put(b"good", b"bad", b"fine", b"later", b"more")
    with queue.member() as member:
        assert member.take() == [(0, 4, 1)]
        said = {0: [(0, 3, [ACCEPT, REJECT, ACCEPT, RELEASE])]}
        for _ in range(2):
            refused = partition_of(member.acknowledge(said))
            assert refused.error_code == Error.COORDINATOR_NOT_AVAILABLE
        dead = f"dlq.{queue.group}"
        queue.configure(errors_deadletterqueue_topic_name=dead)
        # Other words about what is done are refused as ever.
        other = {0: [(0, 3, [ACCEPT, REJECT, REJECT, RELEASE])]}
        assert partition_of(member.acknowledge(other)).error_code == Error.INVALID_RECORD_STATE
        assert not partition_of(member.acknowledge(said)).error_code
        assert [r.value for r in letters(queue, dead)] == [b"bad"]
        assert queue.start() == 3
        # What was released is delivered again, and what is said of that is news.
        assert member.take() == [(3, 3, 2)]
        assert not partition_of(member.acknowledge({0: [(3, 3, RELEASE)]})).error_code
        assert member.take() == [(3, 3, 3)]


def test_only_what_could_not_be_buried_is_delivered_again(queue: Queue) -> None:
    queue.configure(errors_deadletterqueue_topic_name="not-for-dead-letters")
    queue.put(b"good", b"bad", b"fine")
    with queue.member("a") as a, queue.member("b") as b:
        assert a.take() == [(0, 2, 1)]
        a.acknowledge({0: [(0, 2, [ACCEPT, REJECT, ACCEPT])]}, epoch=-1)
        assert b.take() == [(1, 1, 2)]


@pytest.mark.parametrize("problem", ["disk", "surprise"])
def test_no_record_is_finished_whose_letter_was_not_written(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    dead = queue.client.create(f"dlq.{queue.group}")
    queue.configure(errors_deadletterqueue_topic_name=dead)
    queue.put(b"bad")
    with queue.member() as member:
        assert member.take() == [(0, 0, 1)]
        with monkeypatch.context() as patch:
            if problem == "disk":
                log = inside(queue.broker, lambda server: server.partitions[dead, 0].log)
                patch.setattr(Writer, "write", full_disk_of(log))
            else:
                patch.setattr(dead_letters, "_chosen", lambda *what: 1 / 0)
            refused = partition_of(member.acknowledge({0: [(0, 0, REJECT)]}))
            assert refused.error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert queue.start() == 0
        assert letters(queue, dead) == []
        said = partition_of(member.acknowledge({0: [(0, 0, REJECT)]}))
        assert said.error_code == Error.NONE
    assert [r.value for r in letters(queue, dead)] == [b"bad"]


def test_dead_letters_that_wait_are_told_of_once(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.configure(
        errors_deadletterqueue_topic_name="not-for-dead-letters",
        share_delivery_count_limit="2",
        share_record_lock_duration_ms="100",
    )
    queue.put(b"bad")
    failed = inside(queue.broker, lambda server: server.shares.dead_letters.failed)
    with queue.member() as member:
        assert member.take() == [(0, 0, 1)]
        assert member.take() == [(0, 0, 2)]
        letters = lambda server: server.shares.dead_letters.failed
        until(lambda: inside(queue.broker, letters) >= failed + 3, "three attempts")
    assert caplog.text.count("not-for-dead-letters") == 1
    dead = f"dlq.{queue.group}"
    queue.configure(errors_deadletterqueue_topic_name=dead)
    until(lambda: queue.start() == 1, "it is buried")


def test_a_record_that_cannot_be_read_is_not_given_up(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.put(b"bad")
    partition = inside(queue.broker, lambda server: server.partitions[queue.topic, 0])
    dead = Dead(0, 0, 1, True)

    async def find() -> list[Any]:
        return [wanted async for _, wanted in dead_letters._batches(partition, [dead])]

    with monkeypatch.context() as patch:
        patch.setattr(dead_letters, "batches_of", lambda found: iter(()))
        with pytest.raises(dead_letters.Unburied):
            queue.broker._call(find())
    assert queue.broker._call(find()) == [[dead]]


def full_disk_of(log: Log) -> Callable[[Writer], None]:
    """Return a way to write that fails for one log."""
    write = Writer.write

    def write_or_fail(writer: Writer) -> None:
        if writer is log.writer and writer.staged:
            raise StorageError("x.log", "no space", errno.ENOSPC)
        write(writer)

    return write_or_fail
