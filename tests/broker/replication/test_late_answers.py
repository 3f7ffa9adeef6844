"""Answers of a leader that arrive when they are the answer to nothing any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from moldau.broker.partitions.partition import Partition
from moldau.broker.replication.follower.followed import Followed, Next
from moldau.cluster.state.topics import PartitionState
from moldau.log.config import LogConfig
from moldau.log.store.store import LogStore
from moldau.records.record import Record, build_batch
from moldau.testing.waiting import until_async
from moldau.wire.errors import Error
from moldau.wire.fetch.response import FetchedPartition
from tests.broker.replication.brokers import Brokers, held
from tests.broker.replication.conftest import Tell
from tests.broker.replication.links import HeldLink

TOPIC_ID = UUID(int=5)


def test_what_a_leader_sent_in_a_former_term_leaves_no_hole_when_it_arrives_in_another(
    tell: Tell,
) -> None:
    async def story(cluster: Brokers) -> None:
        async with HeldLink(cluster, 0) as link:
            await cluster.stop(0)
            await cluster.start(0, advertised_listeners=link.address)
            await cluster.create("t", (0, 1, 2))
            await cluster.write(0, "t", "a", acks=-1)
            cluster.deafen(1)
            await cluster.write(0, "t", "b")
            await until_async(
                lambda: cluster.ends("t", 2) == [2], "the third has more than the second"
            )
            link.hold_from(b"late")
            await cluster.write(0, "t", "late-1", "late-2")
            await until_async(lambda: link.is_holding, "an answer is on its way")
            # Another leads, who knows less; the first does not hear of it.
            cluster.deafen(0)
            await cluster.lead("t", 1, (0, 1, 2))
            await until_async(lambda: cluster.ends("t", 0, 1, 2) == [4, 1, 1], "the third was cut")
            # Then that one dies, and the first leads again with all that it had.
            await cluster.lead("t", 0, (0, 2))
            link.release()
            await cluster.until_same("t", 0, 2, watermark=4)
            assert held(cluster.partition(2, "t")) == ["a", "b", "late-1", "late-2"]
            assert await cluster.write(0, "t", "c", acks=-1) == 4

    tell(story, 3)


# One partition, by hand


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Partition]:
    """A replica with the offsets 0 to 4, of which three are committed."""
    logs = LogStore(tmp_path, defaults=LogConfig(), max_open_files=4)
    logs.open()
    flusher: Any = SimpleNamespace()
    partition = Partition("t", TOPIC_ID, 0, logs.create("t", 0, TOPIC_ID), 1, [], flusher)
    partition.become(PartitionState((0, 1), (0, 1), 0, 3))
    partition.append_replica(batch(0, 5), 0)
    partition.follow_offsets(3, 0)
    yield partition
    logs.close()


def batch(base: int, count: int = 1, epoch: int = 3) -> memoryview:
    records = [Record(base + at, 1_700_000_000_000, None, b"v") for at in range(count)]
    return memoryview(build_batch(records, leader_epoch=epoch))


def answer(**more: Any) -> FetchedPartition:
    return FetchedPartition(0, **{"high_watermark": 3, "last_stable": 3, "log_start": 0, **more})


LATE = {
    "records that follow": answer(records=batch(5), high_watermark=5),
    "records further on": answer(records=batch(9), high_watermark=10),
    "records that are there": answer(records=batch(0, 5)),
    "offsets": answer(high_watermark=5, log_start=2),
    "a divergence": answer(diverging=(3, 1)),
    "an offset out of range": answer(error=int(Error.OFFSET_OUT_OF_RANGE)),
    "a refusal": answer(error=int(Error.NOT_LEADER_OR_FOLLOWER)),
}


def asked_again(partition: Partition) -> tuple[Followed, int]:
    followed = Followed(partition)
    followed.wanted(1 << 20, 7)
    followed.wanted(1 << 20, 8)
    return followed, 7


def asked_in_a_former_term(partition: Partition) -> tuple[Followed, int]:
    Followed(partition).wanted(1 << 20, 7)
    partition.become(PartitionState((0, 1), (0, 1), 0, 5))
    return Followed(partition), 7


def answered_with_records(partition: Partition) -> tuple[Followed, int]:
    followed = Followed(partition)
    followed.wanted(1 << 20, 7)
    assert followed.take(answer(records=batch(5)), 7) is Next.MOVE
    return followed, 8


def answered_with_a_divergence(partition: Partition) -> tuple[Followed, int]:
    partition.append_replica(batch(5), 5)
    followed = Followed(partition)
    followed.wanted(1 << 20, 7)
    assert followed.take(answer(diverging=(3, 5)), 7) is Next.FLUSH
    return followed, 8


def answered_with_a_refusal(partition: Partition) -> tuple[Followed, int]:
    followed = Followed(partition)
    followed.wanted(1 << 20, 7)
    assert followed.take(answer(error=int(Error.FENCED_LEADER_EPOCH)), 7) is Next.RETRY
    return followed, 8


def relocated(partition: Partition) -> tuple[Followed, int]:
    followed = Followed(partition)
    followed.wanted(1 << 20, 7)
    assert followed.take(answer(error=int(Error.OFFSET_OUT_OF_RANGE)), 7) is Next.RELOCATE
    assert followed.relocate(20, 30) is Next.CHECKPOINT
    return followed, 8


@pytest.mark.parametrize("late", LATE.values(), ids=LATE.keys())
@pytest.mark.parametrize(
    "asked",
    [
        asked_again,
        asked_in_a_former_term,
        answered_with_records,
        answered_with_a_divergence,
        answered_with_a_refusal,
        relocated,
    ],
)
def test_an_answer_to_another_question_is_dropped_whole(
    follower: Partition, asked: Callable[[Partition], tuple[Followed, int]], late: FetchedPartition
) -> None:
    followed, question = asked(follower)
    log = follower.log

    def state() -> tuple[object, ...]:
        offsets = log.log_start, log.log_end, log.high_watermark
        return *offsets, log.epochs.entries, log.segments.size

    before = state()
    assert followed.take(late, question) is Next.STAY
    assert state() == before


def test_a_question_counts_until_it_is_answered(follower: Partition) -> None:
    followed, log = Followed(follower), follower.log
    followed.wanted(1 << 20, 7)
    # A question of the same session that does not name the partition asks for the same as before.
    assert followed.take(answer(high_watermark=4), 7) is Next.STAY
    assert followed.take(answer(high_watermark=5), 8) is Next.STAY
    assert log.high_watermark == 5
    # What compaction left out is no hole.
    assert followed.take(answer(records=batch(8)), 9) is Next.MOVE
    assert (log.log_end, log.high_watermark) == (9, 5)
    followed.wanted(1 << 20, 10)
    assert followed.take(answer(log_start=2), 10) is Next.MOVE
    assert log.log_start == 2


def test_what_was_written_in_a_later_term_is_not_copied_in_this_one(follower: Partition) -> None:
    """The leader has lost the lead, was cut, and has copied this to the place that it sends.

    The log would then end in the new epoch, and nobody would find the batch before, which the new
    leader does not have.
    """
    followed = Followed(follower)
    followed.wanted(1000, 1)
    records = memoryview(bytes(batch(5)) + bytes(batch(6, epoch=4)))
    assert followed.take(answer(records=records), 1) is Next.RETRY
    assert (follower.log.log_end, follower.log.epochs.latest) == (6, 3)
    # Word of the new term comes, whose leader has nothing of the former one from 5 on.
    follower.become(PartitionState((0, 1, 2), (0, 1, 2), 2, 4))
    followed = Followed(follower)
    wanted = followed.wanted(1000, 2)
    assert (wanted.fetch_offset, wanted.last_fetched_epoch) == (6, 3)
    assert followed.take(answer(diverging=(3, 5)), 2) is Next.FLUSH
    followed.wanted(1000, 3)
    assert followed.take(answer(records=batch(5, epoch=4)), 3) is Next.FLUSH
    assert follower.log.epochs.entries[-1] == (4, 5)
