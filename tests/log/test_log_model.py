"""The log against a plain list of batches, in any order of events."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from moldau.log.compaction.candidates import candidate, job_of
from moldau.log.compaction.compactor import compact
from moldau.log.compaction.swap import swap
from moldau.log.config import DAY_MS, LogConfig
from moldau.log.errors import OffsetOutOfRange, OutOfOrderSequence, StorageError
from moldau.log.flushes.flushing import prepare_flush
from moldau.log.log import Log
from moldau.log.lookup import max_timestamp, offset_for_time
from moldau.log.producers.states import KEPT_BATCHES
from moldau.log.replica import append_replica
from moldau.log.retention import delete_expired, delete_records_before, roll_if_due
from moldau.log.store.store import LogStore
from moldau.log.truncation import truncate_to
from moldau.records.batch import batches, read_header
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch, records_of
from tests.log.making import NOW, TERM, batch_of, content, make_log, open_store, read_all

PRODUCERS = 3
KEYS = st.sampled_from([b"a", b"b", b"c"])


class Crash(Exception):
    """Stands for the end of the process."""


class LogModel(RuleBasedStateMachine):
    """`model` holds the bytes of every batch that the log must still give, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="moldau-")
        # Forcing to disk is the slow part, and no crash here loses what the system holds.
        self.patches: list[Any] = [
            mock.patch("os.fsync"),
            mock.patch("moldau.log.flushes.durability._SNAPSHOT_BYTES", 300),
        ]
        for patch in self.patches:
            patch.start()
        self.model: list[bytes] = []
        self.end = 0
        self.start = 0
        self.saved_start = 0
        self.epoch = 0
        self.clock = NOW
        self.sent: dict[int, list[tuple[int, bytes]]] = {}

    def teardown(self) -> None:
        self.store.abandon()
        for patch in self.patches:
            patch.stop()
        shutil.rmtree(self.folder)

    @initialize(
        segment_bytes=st.sampled_from([700, 1500, 100_000]),
        interval=st.sampled_from([0, 150, 4096]),
        index_bytes=st.sampled_from([40, 10 << 20]),
        max_open=st.sampled_from([1, 50]),
    )
    def begin(self, segment_bytes: int, interval: int, index_bytes: int, max_open: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            segment_ms=10_000,
            retention_ms=60_000,
            message_timestamp_after_max_ms=10**12,
        )
        self.max_open = max_open
        self.store = self.open()
        self.log: Log = make_log(self.store)

    def open(self) -> LogStore:
        return open_store(self.folder, self.config, self.max_open)

    # Events

    @rule(
        counts=st.lists(st.integers(1, 4), min_size=1, max_size=5),
        size=st.integers(0, 120),
        codec=st.sampled_from(list(Codec)),
        ahead=st.integers(-2000, 4000),
        key=KEYS,
    )
    def append(self, counts: list[int], size: int, codec: Codec, ahead: int, key: bytes) -> None:
        self.clock += 500
        for count in counts:
            timestamp = self.clock + ahead
            batch = batch_of(count, size=size, codec=codec, timestamp=timestamp, key=key)
            assert self.log.append(batch, self.epoch, self.clock) == (self.end, -1)
            self.took(bytes(batch), count)
        self.commit()

    @rule(producer_id=st.integers(0, PRODUCERS - 1), count=st.integers(1, 3))
    def append_idempotently(self, producer_id: int, count: int) -> None:
        earlier = self.sent.setdefault(producer_id, [])
        sequence = 0
        if earlier:
            last = read_header(earlier[-1][1])
            sequence = last.base_sequence + last.count
        batch = batch_of(count, producer_id=producer_id, sequence=sequence, timestamp=self.clock)
        if earlier:
            gap = batch_of(1, producer_id=producer_id, sequence=sequence + 1)
            with pytest.raises(OutOfOrderSequence):
                self.log.append(gap, self.epoch, self.clock)
        fresh = bytes(batch)
        assert self.log.append(batch, self.epoch, self.clock) == (self.end, -1)
        earlier.append((self.end, fresh))
        self.took(bytes(batch), count)
        self.commit()

    @precondition(lambda self: any(self.sent.values()))
    @rule(data=st.data())
    def append_a_recent_batch_again(self, data: st.DataObject) -> None:
        producer_id = data.draw(st.sampled_from([pid for pid, sent in self.sent.items() if sent]))
        base, batch = data.draw(st.sampled_from(self.sent[producer_id][-KEPT_BATCHES:]))
        again = memoryview(bytearray(batch))
        assert self.log.append(again, self.epoch, self.clock) == (base, -1)
        self.log.commit()

    @rule(gap=st.integers(0, 50), count=st.integers(1, 4), many=st.integers(1, 4))
    def append_as_follower(self, gap: int, count: int, many: int) -> None:
        data = bytearray()
        base = self.end + gap
        for _ in range(many):
            records = [Record(base + n, self.clock, b"k", b"v" * 20) for n in range(count)]
            batch = build_batch(records, leader_epoch=self.epoch)
            data += batch
            self.model.append(bytes(batch))
            base += count
        append_replica(self.log, memoryview(data), self.end, TERM, NOW)
        self.end = base
        self.commit()

    @rule(count=st.integers(1, 3), partial=st.integers(0, 200))
    def append_to_a_full_disk(self, count: int, partial: int) -> None:
        left = [partial]

        def write(fd: int, data: Any) -> int:
            return writev(fd, [data])

        def writev(fd: int, parts: Sequence[Any]) -> int:
            data = b"".join(bytes(part) for part in parts)[: left[0]]
            if not data:
                raise OSError(errno.ENOSPC, "no space left on device")
            left[0] -= len(data)
            return real_write(fd, data)

        real_write = os.write
        with mock.patch("os.write", write), mock.patch("os.writev", writev):
            try:
                for _ in range(count):
                    batch = batch_of(2, size=100, producer_id=99, timestamp=self.clock)
                    self.log.append(batch, self.epoch + 1, self.clock)
            except (StorageError, OutOfOrderSequence):
                pass
            with pytest.raises(StorageError):
                self.log.commit()
        assert self.log.producers.get(99) is None
        assert self.log.epochs.latest <= self.epoch

    @rule(data=st.data(), max_bytes=st.integers(0, 3000), whole_first=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, whole_first: bool) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        up_to = data.draw(st.sampled_from(self.boundaries()))
        piece = self.log.read(offset, max_bytes, up_to, whole_first)
        wanted = [
            batch
            for batch in self.model
            if read_header(batch).last_offset >= offset and read_header(batch).last_offset < up_to
        ]
        if piece is None:
            fits = bool(wanted) and (whole_first or len(wanted[0]) <= max_bytes)
            assert not fits or offset >= up_to
            return
        given = content(piece)
        assert b"".join(wanted).startswith(given)
        assert len(given) <= max_bytes or (whole_first and given == wanted[0])
        assert sum(1 for _ in batches(given)) > 0

    @rule(beyond=st.integers(1, 100))
    def read_out_of_range(self, beyond: int) -> None:
        for offset in (self.end + beyond, self.start - beyond):
            with pytest.raises(OffsetOutOfRange):
                self.log.read(offset, 100, self.end)

    @rule(ago=st.integers(-5000, 5000))
    def look_up_a_time(self, ago: int) -> None:
        wanted = self.clock - ago
        every = [
            record
            for batch in self.model
            for record in records_of(batch)
            if record.offset >= self.start
        ]
        found = offset_for_time(self.log, wanted)
        expected = next((r for r in every if r.timestamp >= wanted), None)
        assert (found and found[:2]) == (expected and (expected.offset, expected.timestamp))
        newest = max_timestamp(self.log)
        if every:
            largest = max(record.timestamp for record in every)
            assert newest is not None
            assert newest[1] == largest

    @rule()
    def a_new_leader(self) -> None:
        self.epoch += 1

    @rule()
    def time_passes(self) -> None:
        self.clock += 11_000
        roll_if_due(self.log, self.clock)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(max(0, self.start - 2), self.end))
        if offset >= self.end:
            truncate_to(self.log, offset)
            return
        restarts = offset < self.log.segments.base
        truncate_to(self.log, offset)
        self.model = [b for b in self.model if read_header(b).last_offset < offset]
        least = read_header(self.model[-1]).last_offset + 1 if self.model else 0
        self.end = self.log.log_end
        assert least <= self.end <= offset
        self.start = min(self.start, self.end)
        self.forget_producers(0 if restarts else self.end)
        self.checkpoint()

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        assert delete_records_before(self.log, self.start) == self.start
        self.drop_before(self.log.segments.base)

    @rule(later=st.sampled_from([0, 30_000, 100_000]), keep=st.sampled_from([-1, 500]))
    def retain(self, later: int, keep: int) -> None:
        self.clock += later
        self.log.config = replace(self.config, retention_bytes=keep)
        delete_expired(self.log, self.clock)
        self.log.config = self.config
        self.start = max(self.start, self.log.segments.base)
        self.drop_before(self.log.segments.base)
        oldest = next((segment for segment in self.log.segments if segment.size), None)
        if keep >= 0 and oldest is not None and oldest is not self.log.segments[-1]:
            assert self.log.segments.size - oldest.size < keep

    @rule()
    def flush(self) -> None:
        flush = prepare_flush(self.log)
        if flush is not None:
            flush.run()
            flush.done()
        assert self.log.flushed == self.end

    @rule(
        map_bytes=st.sampled_from([24 * 16, 1 << 16]),
        later=st.sampled_from([0, DAY_MS + 1]),
        renames=st.one_of(st.none(), st.integers(0, 30)),
    )
    def compact(self, map_bytes: int, later: int, renames: int | None) -> None:
        """With `renames`, the process ends after so many of them."""
        self.log.config = replace(
            self.config, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0
        )
        self.flush()
        self.checkpoint()
        chosen = candidate(self.log, self.clock)
        if chosen is not None:
            job = job_of(chosen, "tag", self.clock + later, map_bytes, 1e15, 0)
            outcome = compact(job)
            assert not outcome.error
            assert outcome.end > chosen.dirty_start
            if renames is None:
                assert swap(chosen, job, outcome)
            else:
                self.crash_in(renames, lambda: swap(chosen, job, outcome))
            self.follow_compaction(outcome.end)
        self.log.config = self.config

    def crash_in(self, renames: int, work: Callable[[], object]) -> None:
        left = [renames]
        real = os.rename

        def rename(old: str, new: str) -> None:
            if not left[0]:
                raise Crash
            left[0] -= 1
            real(old, new)

        with mock.patch("os.rename", rename), contextlib.suppress(Crash):
            work()
        self.store.abandon()
        self.store = self.open()
        self.restarted()

    def follow_compaction(self, end: int) -> None:
        """What is left must be part of what was there, the newest of every key included."""
        before = {r.offset: r for batch in self.model for r in records_of(batch)}
        tail = [batch for batch in self.model if read_header(batch).base_offset >= end]
        self.model = [
            data[position : position + header.size]
            for segment in self.log.segments
            if os.path.exists(segment.path)
            for data in [Path(segment.path).read_bytes()]
            for position, header in batches(data)
        ]
        after = {r.offset: r for batch in self.model for r in records_of(batch)}
        assert before | after == before
        newest = {record.key: record for record in before.values()}
        for record in newest.values():
            assert after.get(record.offset) == record
        assert self.model[len(self.model) - len(tail) :] == tail

    @rule()
    def checkpoint(self) -> None:
        self.store.checkpoint()
        self.saved_start = self.start

    @rule()
    def stop_and_start(self) -> None:
        self.store.close()
        self.store = self.open()
        assert self.store.was_clean
        assert self.store.recovered.checked_bytes == 0
        self.saved_start = self.start
        self.restarted()
        assert self.log.log_start == self.start

    @rule(
        damage=st.sampled_from(["none", "cut", "flip", "junk"]),
        indexes=st.sampled_from(["keep", "remove", "tear", "zero"]),
        saves=st.booleans(),
        data=st.data(),
    )
    def crash(self, damage: str, indexes: str, saves: bool, data: st.DataObject) -> None:
        if saves:
            self.checkpoint()
        # What the recovery point covers is on disk; of the rest anything may be lost. After a crash
        # a log is forced to disk again from before that point.
        safe = max(self.log.flushed, self.log.durability.recovery_point)
        self.store.abandon()
        loose = [
            (segment.path, position, header)
            for segment in self.log.segments
            if os.path.exists(segment.path)
            for position, header in batches(Path(segment.path).read_bytes())
            if header.base_offset >= safe
        ]
        if damage == "junk":
            with open(self.log.segments[-1].path, "ab") as file:
                file.write(data.draw(st.binary(min_size=1, max_size=100)))
        elif damage != "none" and loose:
            path, position, header = data.draw(st.sampled_from(loose))
            at = position + data.draw(st.integers(0, header.size - 1))
            # Base offset and leader epoch are outside of the CRC.
            in_prefix = at - position < 16
            if damage == "cut" or in_prefix:
                os.truncate(path, at)
            else:
                with open(path, "r+b") as file:
                    file.seek(at)
                    byte = file.read(1)[0]
                    file.seek(at)
                    file.write(bytes([byte ^ 0x40]))
            self.model = [b for b in self.model if read_header(b).base_offset < header.base_offset]
        self.damage_indexes(indexes)
        self.store = self.open()
        assert not self.store.was_clean
        self.restarted()

    # How the model follows

    def damage_indexes(self, how: str) -> None:
        for segment in self.log.segments:
            for suffix in (".index", ".timeindex"):
                path = segment.path_of(suffix)
                if how == "keep" or not os.path.exists(path):
                    continue
                size = os.path.getsize(path)
                if how == "remove":
                    os.unlink(path)
                elif how == "tear" and size:
                    os.truncate(path, size - 3)
                elif how == "zero":
                    with open(path, "ab") as file:
                        file.write(bytes(48))

    def took(self, batch: bytes, count: int) -> None:
        self.model.append(batch)
        self.end += count

    def commit(self) -> None:
        self.log.commit()
        self.log.advance_high_watermark(self.end)

    def restarted(self) -> None:
        earlier = {segment.base for segment in self.log.segments}
        self.log = self.store.logs["t", 0]
        if self.log.segments.base not in earlier:
            # What was left ended before log_start, so the log began anew.
            self.sent.clear()
        self.drop_before(self.log.segments.base)
        assert self.log.offline is None
        self.start = max(self.saved_start, self.log.segments.base)
        self.end = self.log.log_end
        if self.model:
            assert self.end >= read_header(self.model[-1]).last_offset + 1
        self.forget_producers(self.end)
        self.log.advance_high_watermark(self.end)

    def forget_producers(self, end: int) -> None:
        for sent in self.sent.values():
            while sent and sent[-1][0] >= end:
                sent.pop()

    def drop_before(self, base: int) -> None:
        self.model = [batch for batch in self.model if read_header(batch).base_offset >= base]

    def boundaries(self) -> list[int]:
        return [self.end, *(read_header(batch).base_offset for batch in self.model)]

    @invariant()
    def the_log_is_what_the_model_says(self) -> None:
        log = self.log
        assert (log.log_start, log.log_end) == (self.start, self.end)
        assert log.log_start <= log.last_stable <= log.high_watermark <= log.log_end
        assert log.log_start <= log.flushed <= log.log_end
        assert log.segments.size == sum(map(len, self.model))
        visible = [b for b in self.model if read_header(b).last_offset >= self.start]
        assert read_all(log) == b"".join(visible)
        assert len(log.segments.pool) <= self.max_open


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
