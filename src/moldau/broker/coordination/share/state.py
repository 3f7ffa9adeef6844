"""Share-group state: how far one group has come in one partition, and how updates change it.

A snapshot is all of it. An update has what changed: later updates are applied over earlier ones.
Where the batches of two overlap, the one with more deliveries counts, and among equals the one
whose state is further on.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from moldau.broker.coordination.share.batches import StateBatch

# The start of a partition that nobody has read from yet: its leader decides.
UNINITIALIZED = -1
UNKNOWN = -1


class ShareKey(NamedTuple):
    """A partition as a group sees it."""

    group: str
    topic_id: UUID
    partition: int

    def __str__(self) -> str:
        """Return the key by which its coordinator is found."""
        return f"{self.group}:{topic_id_text(self.topic_id)}:{self.partition}"


class Update(NamedTuple):
    """What changed since the last snapshot or update; -1 where something stays as it was."""

    leader_epoch: int
    start: int
    finished: int
    batches: tuple[StateBatch, ...] = ()


class ShareState:
    """How far one group has come in one partition.

    `start` is the first offset that is not finished, `finished` how many after it are. The batches
    are in order and do not overlap. `snapshot_offset` is where the log has the last snapshot, which
    is as far back as it has to be read; `updates` counts those since.
    """

    __slots__ = (
        "batches", "created_ms", "finished", "leader_epoch", "snapshot_epoch", "snapshot_offset",
        "start", "state_epoch", "updates", "written_ms",
    )  # fmt: skip

    def __init__(
        self,
        snapshot_epoch: int,
        state_epoch: int,
        leader_epoch: int,
        start: int,
        finished: int = UNKNOWN,
        created_ms: int = -1,
        written_ms: int = -1,
        batches: Sequence[StateBatch] = (),
    ) -> None:
        self.snapshot_epoch = snapshot_epoch
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start = start
        self.finished = finished
        self.created_ms = created_ms
        self.written_ms = written_ms
        self.batches: list[StateBatch] = []
        self.snapshot_offset = 0
        self.updates = 0
        self._merge(batches)

    def apply(self, update: Update) -> None:
        """Take in what an update says."""
        if update.leader_epoch >= 0:
            self.leader_epoch = update.leader_epoch
        # A write that was tried again may arrive after later ones: what is finished stays so.
        self.start = max(self.start, update.start)
        self.finished = update.finished
        self._merge(update.batches)
        self.updates += 1

    def _merge(self, news: Iterable[StateBatch]) -> None:
        batches = self.batches
        for new in news:
            if new.first > new.last:
                continue
            begin = bisect_left(batches, new.first, key=_last)
            end = bisect_right(batches, new.last, key=_first)
            # One more on each side, to be joined if they are alike.
            begin, end = max(begin - 1, 0), min(end + 1, len(batches))
            batches[begin:end] = _joined(_combined(batches[begin:end], new))
        if self.start >= 0:
            del batches[: bisect_left(batches, self.start, key=_last)]
            if batches and batches[0].first < self.start:
                batches[0] = batches[0]._replace(first=self.start)


def _combined(old: Sequence[StateBatch], new: StateBatch) -> list[StateBatch]:
    """Lay a batch over those that are there."""
    pieces: list[StateBatch] = []
    at = new.first
    for each in old:
        if each.last < new.first or each.first > new.last:
            if each.first > new.last and at <= new.last:
                pieces.append(new._replace(first=at))
                at = new.last + 1
            pieces.append(each)
            continue
        if each.first < new.first:
            pieces.append(each._replace(last=new.first - 1))
        if at < each.first:
            pieces.append(new._replace(first=at, last=each.first - 1))
        first, last = max(each.first, new.first), min(each.last, new.last)
        stronger = max(new, each, key=_strength)
        pieces.append(stronger._replace(first=first, last=last))
        at = last + 1
        if each.last > new.last:
            pieces.append(each._replace(first=new.last + 1))
    if at <= new.last:
        pieces.append(new._replace(first=at))
    return pieces


def _joined(pieces: Iterable[StateBatch]) -> list[StateBatch]:
    joined: list[StateBatch] = []
    for piece in pieces:
        before = joined[-1] if joined else None
        if before is not None and before.last + 1 == piece.first and before[2:] == piece[2:]:
            joined[-1] = before._replace(last=piece.last)
        else:
            joined.append(piece)
    return joined


def _strength(batch: StateBatch) -> tuple[int, int]:
    return batch.deliveries, batch.state


def _first(batch: StateBatch) -> int:
    return batch.first


def _last(batch: StateBatch) -> int:
    return batch.last


def topic_id_text(topic_id: UUID) -> str:
    """Return a topic id as Kafka prints it: in the letters of URLs, without padding."""
    return urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def parse_key(text: str) -> ShareKey | None:
    """Return the key that FindCoordinator was given; None where it is none."""
    rest, _, partition = text.rpartition(":")
    group, _, topic_id = rest.rpartition(":")
    try:
        raw = urlsafe_b64decode(topic_id + "==")
        key = ShareKey(group, UUID(bytes=raw), int(partition))
    except ValueError:
        return None
    return key if group and key.partition >= 0 else None
