"""Compaction of one log, in a separate process (see `worker`).

It reads segments that nobody writes to any more and only writes `.cleaned` files; whether these
take the place of anything is the broker's decision.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from moldau.log.compaction.job import CLEANED_SUFFIXES, Cleaned, Job, Outcome
from moldau.log.compaction.key_map import KeyMap
from moldau.log.compaction.throttle import Throttle
from moldau.log.errors import LogError
from moldau.log.files.disk import sync_folder
from moldau.log.files.open_files import FilePool
from moldau.log.producers.aborted import AbortedBatches
from moldau.log.segments.limits import Limits
from moldau.log.segments.names import INDEX_SUFFIX
from moldau.log.segments.segment import MAX_RELATIVE_OFFSET, Segment
from moldau.records.batch import BatchError, BatchHeader, read_header
from moldau.records.raw import DELETE_HORIZON_BIT, RawRecord, raw_records, rebuild
from moldau.records.record import payload_of, read_end_marker

_OPEN_FILES = 64
_WRITE_BYTES = 1 << 20

Batch = bytes | bytearray | memoryview


class CorruptSegment(Exception):
    """A segment that was flushed long ago holds something else than was written."""


class MapTooSmall(Exception):
    """The key map does not even hold the keys of one batch."""


class Compaction:
    """One job under way."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._pool = FilePool(_OPEN_FILES)
        self._limits = Limits(job.index_interval_bytes)
        self._throttle = Throttle(job.bytes_per_second, job.broker_pid)
        self._keys = KeyMap(job.map_bytes, most_keys=job.end - job.dirty_start)
        self._producers = {number: (epoch, lasts) for number, epoch, lasts in job.producers}
        # Looked for when the first transactional batch is met; most logs have none.
        self._aborted: AbortedBatches | None = None
        # Producers whose transaction has a record that stays, so that its marker stays too.
        self._with_data: set[int] = set()
        self._end = job.end
        # The end of the log, if nothing follows the rewritten part.
        is_tail = not any(size for _, size in job.later)
        self._log_end = job.later[0][0] if job.later and is_tail else None
        self._read_records = self._kept_records = 0
        self._read_bytes = self._kept_bytes = 0

    def run(self) -> Outcome:
        """Collect the keys, then rewrite the segments."""
        self._end = self._collect()
        cleaned = [new for group in self._groups() if (new := self._rewrite(group)) is not None]
        if cleaned:
            sync_folder(self._job.folder)
        return Outcome(
            self._end,
            cleaned,
            self._read_records,
            self._kept_records,
            self._read_bytes,
            self._kept_bytes,
            len(self._keys),
        )

    def _segments(self, listed: list[tuple[int, int]]) -> list[Segment]:
        return [
            Segment(self._job.folder, base, size, self._pool, self._limits) for base, size in listed
        ]

    def _with_followers(self) -> Iterator[tuple[Segment, int]]:
        """Each segment of the job, and where the next one begins."""
        segments = self._segments(self._job.segments)
        bases = [segment.base for segment in segments[1:]]
        yield from zip(segments, [*bases, self._job.end], strict=True)

    def _scan(self, segment: Segment) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield a segment's batches. Who rewrites bytes must not give damage a new checksum."""
        try:
            for _, header, batch in segment.batches.scan():
                self._throttle.count(header.size)
                yield header, batch
        except BatchError as error:
            raise CorruptSegment(
                f"{segment.path}: corrupt at position {error.position}: {error}"
            ) from error

    # First pass: which record of a key is the newest

    def _collect(self) -> int:
        """Fill the key map; return the offset up to which it is complete."""
        job = self._job
        for segment, following in self._with_followers():
            if following <= job.dirty_start or not segment.size:
                continue
            for header, batch in self._scan(segment):
                if header.last_offset < job.dirty_start or header.is_control:
                    continue
                if header.base_offset >= job.end:
                    return job.end
                if header.is_transactional and self._is_aborted(header):
                    continue
                if not self._collect_batch(header, batch):
                    # A part of a batch does not count: the next round begins with it.
                    if header.base_offset <= job.dirty_start:
                        raise MapTooSmall("log.cleaner.dedupe.buffer.size is too small for a batch")
                    return header.base_offset
        return job.end

    def _is_aborted(self, header: BatchHeader) -> bool:
        job = self._job
        if self._aborted is None:
            # The clean part holds no aborted records.
            segments = self._segments([*job.segments, *job.later])
            self._aborted = AbortedBatches(segments, job.dirty_start)
        return self._aborted.has(header)

    def _collect_batch(self, header: BatchHeader, batch: memoryview) -> bool:
        """Take in the keys of a batch; False when the map is full."""
        try:
            records = raw_records(payload_of(batch, 0, header), header.count)
        except BatchError:
            return True
        put, base_offset = self._keys.put, header.base_offset
        for record in records:
            key = record[1]
            if key is not None and not put(key, base_offset + record[0]):
                return False
        return True

    # Second pass: write what stays

    def _groups(self) -> Iterator[list[Segment]]:
        """Neighbouring segments that fit one new segment together."""
        job = self._job
        group: list[Segment] = []
        size = index_size = 0
        for segment, following in self._with_followers():
            if segment.base >= self._end:
                break
            index = segment.path_of(INDEX_SUFFIX)
            own_index_size = os.path.getsize(index) if os.path.exists(index) else 0
            if group and (
                size + segment.size > job.segment_bytes
                or index_size + own_index_size > job.segment_index_bytes
                or following - 1 - group[0].base > MAX_RELATIVE_OFFSET
            ):
                yield group
                group, size, index_size = [], 0, 0
            group.append(segment)
            size += segment.size
            index_size += own_index_size
        if group:
            yield group

    def _rewrite(self, group: list[Segment]) -> Cleaned | None:
        """Return the new segment for a group; None if it would be the same as the one that there
        is."""
        job = self._job
        new = Segment(job.folder, group[0].base, 0, self._pool, self._limits, job.suffix)
        new.create(job.now_ms)
        is_changed = len(group) > 1
        waiting: list[Batch] = []
        for segment in group:
            if not segment.size:
                continue
            for header, batch in self._scan(segment):
                kept = self._filtered(header, batch) or self._last(header, batch)
                is_changed = is_changed or kept is not batch
                if kept is None:
                    continue
                new.append_again(header if kept is batch else read_header(kept))
                waiting.append(kept)
                if new.end - new.size >= _WRITE_BYTES:
                    self._write(new, waiting)
        if waiting:
            self._write(new, waiting)
        for segment in group:
            self._keep_aborted(segment, new)
        if not is_changed:
            self._remove(new)
            return None
        self._finish(new, max(os.stat(segment.path).st_mtime for segment in group))
        return Cleaned(new.base, new.size, [segment.base for segment in group])

    def _write(self, new: Segment, batches: list[Batch]) -> None:
        size = new.end - new.size
        new.write(batches)
        batches.clear()
        self._kept_bytes += size
        self._throttle.count(size)

    def _keep_aborted(self, segment: Segment, new: Segment) -> None:
        """Index those aborted transactions that may have records after the compacted part."""
        segment.load_aborted()
        if segment.aborted is not None:
            for each in segment.aborted.transactions():
                if each.last_offset >= self._end:
                    new.note_aborted(each)
            segment.release()

    def _finish(self, new: Segment, modified_s: float) -> None:
        """Force the files of a new segment to disk."""
        new.seal()
        os.fsync(new.open().fd)
        for index in (new.offset_index, new.time_index):
            if index.is_stored:
                os.fsync(index.open().fd)
        if new.aborted is not None:
            new.aborted.write_tail()
            os.fsync(new.aborted.open().fd)
        # Retention by time falls back to this where records have no timestamps.
        os.utime(new.path, (modified_s, modified_s))
        new.release()

    def _remove(self, new: Segment) -> None:
        new.release()
        for suffix in CLEANED_SUFFIXES:
            if os.path.exists(new.path_of(suffix)):
                os.unlink(new.path_of(suffix))

    def _filtered(self, header: BatchHeader, batch: memoryview) -> Batch | None:
        """Return what stays of a batch, perhaps the batch itself; None if nothing does."""
        self._read_records += header.count
        self._read_bytes += header.size
        if header.base_offset >= self._end:
            self._kept_records += header.count
            return batch
        if header.is_control:
            return self._filtered_marker(header, batch)
        if self._aborted is not None and self._aborted.has(header):
            if not self._identifies(header):
                return None
            return rebuild(header, b"", (), None) if header.count else batch
        try:
            payload = payload_of(batch, 0, header)
            records = raw_records(payload, header.count)
        except BatchError:
            # Written when the topic was not compacted yet and records were not looked at.
            self._kept_records += header.count
            self._with_data.add(header.producer_id)
            return batch
        horizon = _horizon(header)
        kept = []
        keeps_tombstones = horizon is None or self._job.now_ms < horizon
        newest, base_offset = self._keys.get, header.base_offset
        for record in records:
            delta, key, is_tombstone = record[:3]
            if key is None or (is_tombstone and not keeps_tombstones):
                continue
            if newest(key) <= base_offset + delta:
                kept.append(record)
        self._kept_records += len(kept)
        if kept and header.is_transactional:
            self._with_data.add(header.producer_id)
        begins_horizon = horizon is None and any(record[2] for record in kept)
        if len(kept) == header.count and not begins_horizon:
            # One without records is there for its producer, and goes once it has a newer one.
            return batch if kept or self._identifies(header) else None
        if not kept and not self._identifies(header):
            return None
        return self._rebuilt(header, payload, kept, begins_horizon)

    def _last(self, header: BatchHeader, batch: memoryview) -> Batch | None:
        """Keep the last batch of the log, if need be without records: a copy of the log would
        end before it otherwise, and give its offsets to other records."""
        if header.last_offset + 1 != self._log_end:
            return None
        return rebuild(header, b"", (), None) if header.count else batch

    def _filtered_marker(self, header: BatchHeader, batch: memoryview) -> Batch | None:
        """Keep a marker while its transaction has records, then for delete.retention.ms."""
        if not header.count:
            return batch if self._identifies(header) else None
        marker = read_end_marker(batch)
        horizon = _horizon(header)
        had_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        is_over = horizon is not None and self._job.now_ms >= horizon
        if marker is not None and not had_data and is_over and not self._identifies(header):
            return None
        self._kept_records += header.count
        if marker is None or had_data or horizon is not None:
            return batch
        payload = payload_of(batch, 0, header)
        return self._rebuilt(header, payload, raw_records(payload, header.count), True)

    def _rebuilt(
        self, header: BatchHeader, payload: bytes, kept: list[RawRecord], begins_horizon: bool
    ) -> bytearray:
        horizon = self._job.now_ms + self._job.delete_retention_ms if begins_horizon else None
        return rebuild(header, payload, kept, horizon)

    def _identifies(self, header: BatchHeader) -> bool:
        """Return whether its producer is recognized by this batch: by the sequence numbers that are
        in it, or, where only a marker is left, by its epoch. Kafka keeps the very last batch only;
        a producer with several under way may have to repeat an earlier one."""
        known = self._producers.get(header.producer_id)
        if known is None or header.producer_id < 0:
            return False
        epoch, last_offsets = known
        if last_offsets:
            return header.last_offset in last_offsets
        return header.is_control and header.producer_epoch == epoch


def _horizon(header: BatchHeader) -> int | None:
    """Return the time from which on the tombstones of a batch may go, once that has been set."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None


def compact(job: Job) -> Outcome:
    """Do the job; the outcome has an error if it failed."""
    try:
        return Compaction(job).run()
    except CorruptSegment as error:
        return Outcome(job.dirty_start, error=str(error), is_corrupt=True)
    except (LogError, BatchError, MapTooSmall, OSError) as error:
        return Outcome(job.dirty_start, error=str(error))
