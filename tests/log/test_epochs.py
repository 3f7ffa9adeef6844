"""The epochs of a log against those of its batches, whoever led, was cut or was killed in between.

That an epoch is taken for later than it began is worse than a loss: who leads by that lets others
keep what was never committed.
"""

from __future__ import annotations

import random
from pathlib import Path
from unittest import mock

import pytest

from moldau.broker.replication.divergence import common_end
from moldau.log.config import LogConfig
from moldau.log.epochs import LeaderEpochs
from moldau.log.flushes.flushing import prepare_flush
from moldau.log.log import Log
from moldau.log.replica import append_replica
from moldau.log.truncation import promises_more, truncate_to
from moldau.records.record import Record, build_batch
from tests.log.making import NOW, batch_of, make_log, offsets_of, open_store, put

_STEPS = 40

# A log as the epochs of its batches, each of one offset.
Epochs = list[int]


def begun(written: Epochs) -> list[tuple[int, int]]:
    return [(each, at) for at, each in enumerate(written) if at == 0 or written[at - 1] != each]


class Replica:
    """`written` is what the log has to hold; `others` are logs that brokers have led with."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.folder = folder
        self.dice = dice
        self.config = LogConfig(
            segment_bytes=dice.choice([300, 1000, 100_000]),
            index_interval_bytes=dice.choice([0, 150, 4096]),
        )
        self.store = open_store(folder, self.config)
        self.log = make_log(self.store)
        self.written: Epochs = []
        self.others: list[Epochs] = [[]]
        self.epoch = 0
        self.is_cut = False

    def lead(self) -> None:
        self.epoch += 1
        self.log.epochs.assign(self.epoch, self.log.log_end)
        if self.dice.random() < 0.5:
            self.flush()
        count = self.dice.choice([0, 0, 1, 5])
        put(self.log, *(batch_of() for _ in range(count)), epoch=self.epoch)
        self.written += [self.epoch] * count
        self.others.append(list(self.written))

    def follow(self) -> None:
        """Copy from a broker that led before, or follows one that did, up to some offset."""
        dice = self.dice
        self.epoch += 1
        leader = dice.choice(self.others[-5:])
        leader = leader[: max(len(leader) - dice.choice([0, 1, 4]), 0)]
        leader = leader + [self.epoch] * dice.choice([0, 1, 8])
        self.others.append(leader)
        self.log.epochs.truncate_end(self.log.log_end)
        if self.cut_for(leader):
            killed = dice.choice(["", "before the checkpoint", "before the flush"])
            if self.is_cut and killed != "before the checkpoint":
                self.store.checkpoint()
            if killed:
                self.kill()
                return
            self.flush()
        taken = leader[len(self.written) :][: dice.choice([2, 5, 30])]
        for epoch in taken:
            at = self.log.log_end
            batch = build_batch([Record(at, NOW, b"k", b"v" * 10)], leader_epoch=epoch)
            append_replica(self.log, memoryview(batch), at, self.epoch, NOW)
        self.log.commit()
        self.written += taken

    def cut_for(self, leader: Epochs) -> bool:
        """Cut what the leader does not have; whether there was anything."""
        theirs = LeaderEpochs(begun(leader))
        theirs.assign(self.epoch, len(leader))
        before, self.is_cut = len(self.written), False
        while self.written:
            last = self.log.epochs.latest
            epoch, end = theirs.end_of(last, len(leader))
            if epoch == last and end >= len(self.written):
                break
            # A leader that knows no such epoch has nothing: the follower begins anew.
            cut = common_end(self.log.epochs, self.log.log_end, epoch, max(end, 0))
            self.is_cut = self.is_cut or promises_more(self.log, cut)
            truncate_to(self.log, cut)
            assert self.log.log_end < len(self.written)
            del self.written[self.log.log_end :]
        assert self.written == leader[: len(self.written)]
        return len(self.written) < before

    def flush(self) -> None:
        flush = prepare_flush(self.log)
        if flush is not None:
            flush.run()
            flush.done()
        if self.dice.random() < 0.5:
            self.store.checkpoint()

    def checkpoint(self) -> None:
        self.store.checkpoint()

    def kill(self) -> None:
        self.store.abandon()
        self.open()

    def stop(self) -> None:
        self.store.close()
        self.open()

    def open(self) -> None:
        self.store = open_store(self.folder, self.config)
        self.log = self.store.logs["t", 0]

    def check(self) -> None:
        assert offsets_of(self.log) == list(range(len(self.written)))
        known = [entry for entry in self.log.epochs.entries if entry[1] < self.log.log_end]
        assert known == begun(self.written)


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_every_epoch_begins_where_it_did(tmp_path: Path, first: int) -> None:
    # Forcing to disk is the slow part, and no crash here loses what the system holds.
    with mock.patch("os.fsync"):
        for seed in range(first, first + 50):
            dice = random.Random(seed)
            replica = Replica(tmp_path / str(seed), dice)
            steps = [replica.lead, replica.follow, replica.follow, replica.flush, replica.kill]
            steps.append(replica.checkpoint)
            for number in range(_STEPS):
                dice.choice([*steps, replica.stop])()
                try:
                    replica.check()
                except AssertionError as wrong:
                    raise AssertionError(f"seed {seed}, step {number}") from wrong
            replica.store.abandon()


def copy(log: Log, offset: int, epoch: int, begins: int = 0) -> None:
    """A batch of an earlier leader, as a follower copies it in a later term."""
    batch = build_batch([Record(offset, NOW, b"k", b"v")], leader_epoch=epoch)
    append_replica(log, memoryview(batch), log.log_end, 9, NOW, begins)
    log.commit()


def lead_in_vain(log: Log, epoch: int) -> None:
    """Lead without writing anything, while what was written before is forced to disk."""
    log.epochs.assign(epoch, log.log_end)
    flush = prepare_flush(log)
    assert flush is not None
    flush.run()
    flush.done()
    log.epochs.truncate_end(log.log_end)


@pytest.mark.parametrize("next_offset", [3, 8], ids=["at once", "behind a gap"])
def test_an_epoch_that_goes_on_behind_one_without_records_keeps_its_beginning(
    tmp_path: Path, next_offset: int
) -> None:
    store = open_store(tmp_path)
    log = make_log(store)
    put(log, batch_of(), epoch=2)
    copy(log, 2, 3, begins=1)
    lead_in_vain(log, 4)
    copy(log, next_offset, 3)
    store.abandon()
    log = open_store(tmp_path).logs["t", 0]
    assert log.epochs.entries == [(2, 0), (3, 1)]


def test_an_epoch_begins_before_a_gap_though_one_without_records_is_in_the_file(
    tmp_path: Path,
) -> None:
    """Nobody knows where it began whose first batches are compacted away."""
    store = open_store(tmp_path)
    log = make_log(store)
    put(log, batch_of(), epoch=2)
    lead_in_vain(log, 4)
    copy(log, 5, 3)
    store.abandon()
    log = open_store(tmp_path).logs["t", 0]
    assert log.epochs.entries == [(2, 0), (3, 1)]
