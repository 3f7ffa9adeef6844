"""Followers of compacted logs: where an epoch began whose first batches are gone."""

from __future__ import annotations

from collections.abc import Iterator
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
from moldau.wire.fetch.response import FetchedPartition

TOPIC_ID = UUID(int=5)


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    """A replica with an offset of epoch 1, in term 3."""
    logs = LogStore(tmp_path, defaults=LogConfig(), max_open_files=4)
    logs.open()
    flusher: Any = SimpleNamespace()
    partition = Partition("t", TOPIC_ID, 0, logs.create("t", 0, TOPIC_ID), 1, [], flusher)
    partition.become(PartitionState((0, 1), (0, 1), 0, 3))
    partition.append_replica(memoryview(batch(0, 1)), 0)
    yield Followed(partition)
    logs.close()


def batch(offset: int, epoch: int) -> bytes:
    return bytes(build_batch([Record(offset, 1_700_000_000_000, b"k", b"v")], leader_epoch=epoch))


def take(followed: Followed, question: int, *batches: bytes) -> Next:
    followed.wanted(1 << 20, question)
    answer = FetchedPartition(0, high_watermark=20, last_stable=20, log_start=0)
    answer.records = memoryview(bytearray(b"".join(batches)))
    return followed.take(answer, question)


def test_a_leader_is_asked_where_an_epoch_began_behind_a_gap(followed: Followed) -> None:
    log = followed.partition.log
    assert take(followed, 1, batch(9, 2)) is Next.LEARN
    assert log.log_end == 1
    assert followed.last_epoch == 1
    followed.learn(4)
    assert take(followed, 2, batch(9, 2)) is Next.MOVE
    assert log.epochs.entries == [(1, 0), (2, 4)]
    # Whoever comes back with more of the first epoch is cut there, not where the gap ends.
    assert log.epochs.end_of(1, log.log_end) == (1, 4)


def test_what_lies_before_a_gap_is_taken_first(followed: Followed) -> None:
    log = followed.partition.log
    batches = [batch(1, 1), batch(5, 1), batch(9, 2)]
    assert take(followed, 1, *batches) is Next.MOVE
    assert log.log_end == 6
    assert take(followed, 2, batches[2]) is Next.LEARN


def test_a_word_about_an_end_that_has_moved_counts_for_nothing(followed: Followed) -> None:
    followed.learn(4)
    assert take(followed, 1, batch(1, 1)) is Next.MOVE
    assert take(followed, 2, batch(9, 2)) is Next.LEARN


@pytest.mark.parametrize("epoch", [1, 2])
def test_nobody_is_asked_where_nothing_is_hidden(followed: Followed, epoch: int) -> None:
    assert take(followed, 1, batch(1 if epoch == 2 else 9, epoch)) is Next.MOVE
