"""Shared batches: what tasks of several queries read once, also if one of them fails or lags."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from moldau.spark.formats import shared_batches
from moldau.spark.formats.parsing import Parsed
from moldau.spark.formats.shared_batches import SharedBatches, forget
from moldau.spark.source.ranges import OffsetRange
from moldau.testing.waiting import until

ROWS_A_PIECE = 10


class Topic:
    """A partition whose every third record is bad; it counts what is read of it."""

    def __init__(self) -> None:
        self.parsed: list[int] = []

    def parse(self, wanted: OffsetRange) -> Iterator[Parsed]:
        for start in range(wanted.start, wanted.end, ROWS_A_PIECE):
            offsets = list(range(start, min(start + ROWS_A_PIECE, wanted.end)))
            self.parsed += offsets
            yield piece(offsets)


def piece(offsets: list[int]) -> Parsed:
    batch = pa.RecordBatch.from_pydict({"name": [f"record {each}" for each in offsets]})
    bad = [each for each in offsets if each % 3 == 0]
    records = pa.RecordBatch.from_pydict({"offset": bad, "value": [b"%d" % each for each in bad]})
    return Parsed(
        batch,
        pa.array(offsets, pa.int64()),
        offsets[-1] + 1,
        records if bad else None,
        {row: f"reason {each}" for row, each in enumerate(bad)},
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # A chunk for every second piece.
    monkeypatch.setattr(shared_batches, "CHUNK_BYTES", 2 * piece(list(range(10))).batch.nbytes)
    (tmp_path / "shared").mkdir(mode=0o700)
    return tmp_path / "shared" / "run" / "spec" / "topic-0"


def of(start: int, end: int) -> OffsetRange:
    return OffsetRange("topic", None, 0, start, end)


def rows(pieces: list[Parsed]) -> list[str]:
    return [name for each in pieces for name in each.batch.column("name").to_pylist()]


def bad(pieces: list[Parsed]) -> dict[int, tuple[bytes, str]]:
    found: dict[int, tuple[bytes, str]] = {}
    for each in pieces:
        if each.bad is not None:
            for row, record in enumerate(each.bad.to_pylist()):
                assert record["offset"] not in found
                found[record["offset"]] = (record["value"], each.reasons[row])
    return found


def check(pieces: list[Parsed], start: int, end: int) -> None:
    wanted = range(start, end)
    assert rows(pieces) == [f"record {each}" for each in wanted]
    assert bad(pieces) == {
        each: (b"%d" % each, f"reason {each}") for each in wanted if each % 3 == 0
    }
    assert [offset for each in pieces for offset in each.offsets.to_pylist()] == list(wanted)


def test_what_one_sink_has_read_another_need_not_read(folder: Path) -> None:
    topic = Topic()
    check(list(SharedBatches(folder, "a", 2).read(of(0, 95), topic.parse)), 0, 95)
    check(list(SharedBatches(folder, "b", 2).read(of(0, 95), topic.parse)), 0, 95)
    assert topic.parsed == list(range(95))


def test_ranges_of_batches_need_not_be_the_same(folder: Path) -> None:
    topic = Topic()
    a, b = SharedBatches(folder, "a", 2), SharedBatches(folder, "b", 2)
    check(list(a.read(of(0, 37), topic.parse)), 0, 37)
    check(list(b.read(of(5, 64), topic.parse)), 5, 64)
    check(list(a.read(of(37, 80), topic.parse)), 37, 80)
    check(list(b.read(of(64, 71), topic.parse)), 64, 71)
    assert topic.parsed == list(range(80))


def test_a_chunk_that_all_sinks_have_passed_is_removed(folder: Path) -> None:
    topic = Topic()
    a, b = SharedBatches(folder, "a", 2), SharedBatches(folder, "b", 2)
    list(a.read(of(0, 40), topic.parse))
    list(a.read(of(40, 60), topic.parse))
    assert len(list(folder.glob("*.arrow"))) == 3
    list(b.read(of(0, 40), topic.parse))
    assert len(list(folder.glob("*.arrow"))) == 3
    list(b.read(of(40, 60), topic.parse))
    assert [each.name for each in folder.glob("*.arrow")] == ["40-60.arrow"]


def test_a_sink_that_lags_reads_by_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic()
    monkeypatch.setattr(shared_batches, "KEPT_BYTES", 4000)
    list(SharedBatches(folder, "a", 2).read(of(0, 400), topic.parse))
    kept = sum(each.stat().st_size for each in folder.glob("*.arrow"))
    assert 0 < kept <= 4000
    check(list(SharedBatches(folder, "b", 2).read(of(0, 400), topic.parse)), 0, 400)
    assert len(topic.parsed) > 400


def test_old_chunks_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic()
    a = SharedBatches(folder, "a", 2)
    list(a.read(of(0, 20), topic.parse))
    for each in folder.glob("*.arrow"):
        os.utime(each, (0, 0))
    list(a.read(of(20, 40), topic.parse))
    assert [each.name for each in folder.glob("*.arrow")] == ["20-40.arrow"]


def test_two_tasks_at_once_parse_once(folder: Path) -> None:
    """The second waits for the first, which has begun to parse."""
    topic = Topic()
    has_begun, may_go_on = threading.Event(), threading.Event()

    def slowly(wanted: OffsetRange) -> Iterator[Parsed]:
        for each in topic.parse(wanted):
            has_begun.set()
            assert may_go_on.wait(30)
            yield each

    found: dict[str, list[Parsed]] = {}

    def run(sink: str) -> None:
        parse = slowly if sink == "a" else topic.parse
        found[sink] = list(SharedBatches(folder, sink, 2).read(of(0, 95), parse))

    threads = [threading.Thread(target=run, args=(sink,)) for sink in "ab"]
    threads[0].start()
    assert has_begun.wait(30)
    threads[1].start()
    until(lambda: (folder / "b.position").exists(), "the second task has begun")
    may_go_on.set()
    for each in threads:
        each.join(60)
    check(found["a"], 0, 95)
    check(found["b"], 0, 95)
    assert sorted(topic.parsed) == list(range(95))


def test_nobody_waits_for_ever_for_a_task_that_hangs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic()
    monkeypatch.setattr(shared_batches, "WAIT_S", 0.05)
    has_begun, may_end = threading.Event(), threading.Event()

    def hanging(wanted: OffsetRange) -> Iterator[Parsed]:
        has_begun.set()
        assert may_end.wait(60)
        yield from topic.parse(wanted)

    first: list[Parsed] = []
    thread = threading.Thread(
        target=lambda: first.extend(SharedBatches(folder, "a", 2).read(of(0, 30), hanging))
    )
    thread.start()
    try:
        assert has_begun.wait(30)
        check(list(SharedBatches(folder, "b", 2).read(of(0, 30), topic.parse)), 0, 30)
    finally:
        may_end.set()
        thread.join(60)
    check(first, 0, 30)


KILLED = """
import os, signal, sys
from pathlib import Path
from moldau.spark.formats import shared_batches
from moldau.spark.formats.shared_batches import SharedBatches
from tests.spark.formats.test_shared_batches import Topic, of

written = []
def stop_in_the_middle(path, content):
    if path.suffix == ".arrow":
        path.with_name("half.new").write_bytes(content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    path.write_bytes(content)

shared_batches._replace = stop_in_the_middle
list(SharedBatches(Path(sys.argv[1]), "a", 2).read(of(0, 30), Topic().parse))
"""


def test_a_task_that_is_killed_while_it_writes_leaves_nothing_that_counts(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], timeout=60, check=False)
    assert done.returncode == -9
    assert (folder / "half.new").exists()
    topic = Topic()
    check(list(SharedBatches(folder, "b", 2).read(of(0, 30), topic.parse)), 0, 30)
    assert topic.parsed == list(range(30))


def test_a_full_disk_only_ends_the_sharing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, content: bytes) -> None:
        if path.suffix == ".arrow":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(shared_batches, "_replace", full)
    monkeypatch.setattr(shared_batches, "_told", set())
    topic = Topic()
    check(list(SharedBatches(folder, "a", 2).read(of(0, 95), topic.parse)), 0, 95)
    assert topic.parsed == list(range(95))
    assert "No space left on device" in caplog.text
    assert len(caplog.records) == 1


def test_a_folder_that_others_can_write_to_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder.parents[2].chmod(0o777)
    monkeypatch.setattr(shared_batches, "_told", set())
    topic = Topic()
    check(list(SharedBatches(folder, "a", 2).read(of(0, 20), topic.parse)), 0, 20)
    assert "other users can access it" in caplog.text
    assert not folder.exists()


def test_a_failure_while_parsing_is_the_failure_of_its_task_alone(folder: Path) -> None:
    topic = Topic()

    def failing(wanted: OffsetRange) -> Iterator[Parsed]:
        yield from topic.parse(of(wanted.start, wanted.start + 10))
        raise ValueError("not a record")

    with pytest.raises(ValueError, match="not a record"):
        list(SharedBatches(folder, "a", 2).read(of(0, 30), failing))
    check(list(SharedBatches(folder, "b", 2).read(of(0, 30), topic.parse)), 0, 30)


def test_a_run_is_forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    place = shared_batches.folder_of("run") / "spec" / "topic-0"
    list(SharedBatches(place, "a", 2).read(of(0, 20), Topic().parse))
    old = shared_batches.folder_of("old")
    old.mkdir()
    os.utime(old, (0, 0))
    assert place.exists()
    forget("run")
    assert not shared_batches.folder_of("run").exists()
    other = shared_batches.folder_of("other") / "spec" / "topic-0"
    list(SharedBatches(other, "a", 2).read(of(0, 20), Topic().parse))
    assert not old.exists()
