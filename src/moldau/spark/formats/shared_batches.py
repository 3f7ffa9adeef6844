"""Shared batches: what a task of one query has read and parsed, for the pipeline's other queries.

Each sink of a pipeline has a query of its own, which reads its sources at its own pace. A task
takes what tasks of other queries have left on this machine, and reads only what nobody has. So a
source of several sinks is fetched and parsed once while they keep about the same pace, and one that
lags behind reads by itself.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import msgspec

from moldau.spark.errors import log
from moldau.spark.formats.parsing import Parsed
from moldau.spark.source.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.spark.formats.spec import Sharing, ValueSpec

# What is parsed in one go, while others wait for it.
CHUNK_BYTES = 16 << 20
# What is kept of one partition for queries that lag behind, and for how long.
KEPT_BYTES = 128 << 20
KEPT_S = 60.0
# How long a task waits for another that parses, before it does so itself.
WAIT_S = 10.0
# What a driver that was killed has left is removed after this.
FORGOTTEN_S = 24 * 3600.0
_POLL_S = 0.005

_CHUNK, _POSITION, _LOCK = ".arrow", ".position", "lock"
_BAD, _REASONS = b"bad", b"reasons"

ParseRange = Callable[[OffsetRange], Iterator[Parsed]]


class Chunk(NamedTuple):
    """The records of a partition from `start` up to `end`."""

    start: int
    end: int
    path: Path


class SharedBatches:
    """The chunks of one partition, in a folder that all tasks on this machine see.

    `START-END.arrow` is an Arrow stream of parsed batches, whose last column has the offsets; its
    schema carries the bad records. It is written under another name and renamed when it is whole,
    so that nobody reads what a crash has left. Whoever parses holds `lock`, which the kernel frees
    with the process. `SINK.position` is where the last task of a sink began: a chunk that all sinks
    have passed is removed. Nothing here is needed: where the folder fails, a task reads by itself.
    """

    def __init__(self, folder: Path, sink: str, sinks: int) -> None:
        self._folder = folder
        self._sink = sink
        self._sinks = sinks

    @classmethod
    def of(cls, spec: ValueSpec, sharing: Sharing, partition: OffsetRange) -> SharedBatches:
        """Return the chunks for what a task is to read."""
        parsed_alike = hashlib.sha256(msgspec.json.encode(spec.common)).hexdigest()[:16]
        topic = partition.topic_id or partition.topic
        place = folder_of(sharing.run) / parsed_alike / f"{topic}-{partition.partition}"
        return cls(place, sharing.sink, sharing.sinks)

    def read(self, wanted: OffsetRange, parse: ParseRange) -> Iterator[Parsed]:
        """Yield the records of a range; `parse` is asked for those that are not here."""
        is_shared = self._begin(wanted.start)
        position, own = wanted.start, _Parsing(parse, wanted)
        try:
            while position < wanted.end:
                found = self._taken(position, wanted.end) if is_shared else None
                if found is None:
                    with self._alone(is_shared) as may_share:
                        if may_share:
                            found = self._taken(position, wanted.end)
                        if found is None:
                            found = own.next_chunk(position)
                            if may_share:
                                is_shared = self._put(position, *found)
                pieces, position = found
                yield from pieces
        finally:
            own.close()

    def _begin(self, position: int) -> bool:
        """Note where this sink is, and remove what all have passed; False if nothing is shared."""
        try:
            _make(self._folder)
            _replace(self._folder / f"{self._sink}{_POSITION}", str(position).encode())
            positions = [int(each.read_text()) for each in self._folder.glob(f"*{_POSITION}")]
            passed = min(positions) if len(positions) >= self._sinks else -1
            self._remove(passed)
        except (OSError, ValueError) as problem:
            _tell(problem)
            return False
        return True

    def _remove(self, passed: int) -> None:
        """Remove what nobody needs, what is too old, and the oldest of what is too much."""
        kept = 0
        for chunk in sorted(self._chunks(), reverse=True):
            with suppress(FileNotFoundError):
                status = chunk.path.stat()
                kept += status.st_size
                is_old = time.time() - status.st_mtime > KEPT_S
                if chunk.end <= passed or is_old or kept > KEPT_BYTES:
                    chunk.path.unlink()

    def _chunks(self) -> Iterator[Chunk]:
        for path in self._folder.glob(f"*{_CHUNK}"):
            start, _, end = path.stem.partition("-")
            yield Chunk(int(start), int(end), path)

    @contextmanager
    def _alone(self, is_shared: bool) -> Iterator[bool]:
        """Wait until no other task parses; False if that takes too long, or nothing is shared."""
        if not is_shared:
            yield False
            return
        try:
            descriptor = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as problem:
            _tell(problem)
            yield False
            return
        try:
            yield _locked(descriptor)
        finally:
            os.close(descriptor)

    def _taken(self, position: int, end: int) -> tuple[list[Parsed], int] | None:
        """Return what a chunk has from `position` on, and how far that goes."""
        covering = [each for each in self._chunks() if each.start <= position < each.end]
        for chunk in sorted(covering, key=lambda each: -each.end):
            # It may have been removed since.
            with suppress(FileNotFoundError):
                return _load(chunk.path, position, end), min(chunk.end, end)
        return None

    def _put(self, position: int, pieces: list[Parsed], end: int) -> bool:
        """Leave a chunk for others; False if that fails, as on a full disk."""
        try:
            _replace(self._folder / f"{position}-{end}{_CHUNK}", _dump(pieces))
            self._remove(-1)
        except OSError as problem:
            _tell(problem)
            return False
        return True


class _Parsing:
    """The reading that a task does itself, which goes on where the last chunk ended."""

    def __init__(self, parse: ParseRange, wanted: OffsetRange) -> None:
        self._parse = parse
        self._wanted = wanted
        self._pieces: Iterator[Parsed] = iter(())
        self._position = -1

    def next_chunk(self, position: int) -> tuple[list[Parsed], int]:
        if position != self._position:
            # Others have been faster in between.
            self.close()
            self._pieces = self._parse(replace(self._wanted, start=position))
        found: list[Parsed] = []
        size = 0
        self._position = self._wanted.end
        for piece in self._pieces:
            found.append(piece)
            size += piece.batch.nbytes
            if size >= CHUNK_BYTES and piece.end > position:
                self._position = piece.end
                break
        return found, self._position

    def close(self) -> None:
        end = getattr(self._pieces, "close", None)
        if end is not None:
            end()


def forget(run: str) -> None:
    """Remove what a run has left on this machine."""
    if run:
        folder = folder_of(run)
        shutil.rmtree(folder, ignore_errors=True)
        # The last one takes the folder of all runs along.
        with suppress(OSError):
            folder.parent.rmdir()


def folder_of(run: str) -> Path:
    return Path(tempfile.gettempdir()) / f"moldau-shared-{os.geteuid()}" / run


def _make(folder: Path) -> None:
    """Make the folder, where nobody else can look or write."""
    if folder.is_dir():
        return
    run = folder.parent.parent
    run.parent.mkdir(mode=0o700, exist_ok=True)
    status = run.parent.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077 or run.parent.is_symlink():
        raise PermissionError(f"{run.parent} belongs to another user, or other users can access it")
    with suppress(FileExistsError):
        run.mkdir()
        for other in run.parent.iterdir():
            with suppress(FileNotFoundError):
                if time.time() - other.stat().st_mtime > FORGOTTEN_S:
                    shutil.rmtree(other, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)


def _locked(descriptor: int) -> bool:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        else:
            return True


def _replace(path: Path, content: bytes | memoryview) -> None:
    """Write a file that others see only when it is whole."""
    new = path.with_name(f"{uuid4().hex}.new")
    try:
        new.write_bytes(content)
        new.rename(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _dump(pieces: list[Parsed]) -> memoryview:
    import pyarrow as pa

    bad = [piece.bad for piece in pieces if piece.bad is not None]
    reasons = [piece.reasons[row] for piece in pieces for row in sorted(piece.reasons)]
    metadata = {_REASONS: msgspec.json.encode(reasons)}
    if bad:
        metadata[_BAD] = bytes(_stream(bad, bad[0].schema))
    rows = [piece.batch.append_column(pa.field("", pa.int64()), piece.offsets) for piece in pieces]
    schema = rows[0].schema if rows else pa.schema([])
    return memoryview(_stream(rows, schema.with_metadata(metadata)))


def _stream(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Buffer:
    import pyarrow as pa

    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema) as stream:
        for batch in batches:
            stream.write_batch(batch.replace_schema_metadata(schema.metadata))
    return out.getvalue()


def _load(path: Path, position: int, end: int) -> list[Parsed]:
    """Return the records of a chunk with these offsets; the bad ones come with the first batch."""
    import numpy as np
    import pyarrow as pa

    with pa.ipc.open_stream(pa.memory_map(str(path))) as stream:
        metadata = stream.schema.metadata
        bad, reasons = _load_bad(metadata, position, end)
        found = []
        for batch in stream:
            offsets = batch.column(batch.num_columns - 1)
            first, last = np.searchsorted(offsets.to_numpy(), (position, end))
            if first == last:
                continue
            rows = batch.slice(first, last - first).replace_schema_metadata(None)
            offsets = rows.column(rows.num_columns - 1)
            columns = rows.remove_column(rows.num_columns - 1)
            found.append(Parsed(columns, offsets, offsets[-1].as_py() + 1, bad, reasons))
            bad, reasons = None, {}
    return found


def _load_bad(
    metadata: dict[bytes, bytes], position: int, end: int
) -> tuple[pa.RecordBatch | None, dict[int, str]]:
    import pyarrow as pa

    if _BAD not in metadata:
        return None, {}
    with pa.ipc.open_stream(metadata[_BAD]) as stream:
        records = stream.read_all().combine_chunks()
    reasons = msgspec.json.decode(metadata[_REASONS], type=list[str])
    offsets = records.column("offset").to_pylist()
    rows = [row for row, offset in enumerate(offsets) if position <= offset < end]
    if not rows:
        return None, {}
    (wanted,) = records.take(pa.array(rows)).combine_chunks().to_batches()
    return wanted, {number: reasons[row] for number, row in enumerate(rows)}


_told: set[str] = set()


def _tell(problem: Exception) -> None:
    """Log what keeps tasks from sharing, once for each reason and process."""
    reason = str(problem)
    if reason not in _told:
        _told.add(reason)
        log.warning("each sink reads the records itself, which takes longer: %s", reason)
