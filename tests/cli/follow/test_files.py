"""Files that grow, rotate and are cut, without a broker: what is read, and what is known again."""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from moldau.cli.follow.followed import Followed
from moldau.cli.follow.marks import Marks
from moldau.cli.follow.read_back import parse_position, position_header
from moldau.cli.follow.siblings import rotation_pattern
from moldau.cli.follow.source import ContentChanged, Piece, Source
from moldau.cli.follow.state import StateFile
from moldau.cli.views.output import Failure


class Reader:
    """A collector without a broker: every line it reads is delivered at once."""

    def __init__(self, path: Path, state_folder: Path) -> None:
        self.followed = Followed(path, StateFile(state_folder, "cluster", "topic", path))
        self.followed.resume({}, {})

    def read(self) -> list[str]:
        found: list[str] = []
        self.followed.scan()
        for source in [source for source in self.followed.sources if source.is_open]:
            try:
                for piece in source.next_lines():
                    source.settle(piece.end, source.advance(piece))
                    found.append(piece.content.decode().rstrip("\n"))
            except ContentChanged:
                self.followed.content_changed(source)
                found += self.read()
        return found

    def stop(self) -> None:
        self.followed.save()
        self.followed.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "log"
    folder.mkdir()
    return folder / "app.log"


@pytest.fixture
def reader(log: Path, tmp_path: Path) -> Iterator[Callable[[], Reader]]:
    """Starts a reader; the one before it is stopped first."""
    running: list[Reader] = []

    def start() -> Reader:
        if running:
            running.pop().stop()
        running.append(Reader(log, tmp_path / "state"))
        return running[0]

    yield start
    for each in running:
        each.stop()


Start = Callable[[], Reader]


def write(path: Path, *lines: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_lines_are_read_as_they_come_and_an_unfinished_one_waits(log: Path, reader: Start) -> None:
    reading = reader()
    assert reading.read() == []
    write(log, "one", "two")
    with open(log, "a") as file:
        file.write("thr")
    assert reading.read() == ["one", "two"]
    assert reading.read() == []
    write(log, "ee", "four")
    assert reading.read() == ["three", "four"]


def test_a_line_longer_than_one_read_comes_whole(log: Path, reader: Start) -> None:
    write(log, "short", "x" * 1_000_000, "end")
    reading = reader()
    assert [len(line) for line in [*reading.read(), *reading.read()]] == [5, 1_000_000, 3]


def test_a_renamed_file_is_read_to_its_end_and_then_the_new_one(log: Path, reader: Start) -> None:
    reading = reader()
    write(log, "one")
    assert reading.read() == ["one"]
    write(log, "two")
    log.rename(f"{log}.1")
    write(Path(f"{log}.1"), "three")
    write(log, "four")
    assert reading.read() == ["two", "three", "four"]
    write(Path(f"{log}.1"), "late")
    assert reading.read() == ["late"]


def test_a_deleted_file_is_read_to_its_end(log: Path, reader: Start) -> None:
    reading = reader()
    write(log, "one")
    assert reading.read() == ["one"]
    write(log, "two")
    log.unlink()
    write(log, "three")
    assert reading.read() == ["two", "three"]


def test_what_a_copy_has_that_was_cut_away_is_read_from_the_copy(log: Path, reader: Start) -> None:
    reading = reader()
    write(log, "one", "two")
    assert reading.read() == ["one", "two"]
    write(log, "three")
    shutil.copy(log, f"{log}.1")
    os.truncate(log, 0)
    write(log, "four")
    assert reading.read() == ["three", "four"]
    Path(f"{log}.1").rename(f"{log}.2")
    write(log, "five")
    shutil.copy(log, f"{log}.1")
    os.truncate(log, 0)
    assert reading.read() == ["five"]


def test_a_file_cut_and_grown_past_the_place_is_noticed(log: Path, reader: Start) -> None:
    reading = reader()
    write(log, "one")
    assert reading.read() == ["one"]
    os.truncate(log, 0)
    write(log, "a longer line than the first", "another")
    assert reading.read() == ["a longer line than the first", "another"]


def test_a_restart_goes_on_where_it_stopped(log: Path, reader: Start) -> None:
    write(log, "one")
    assert reader().read() == ["one"]
    write(log, "two")
    assert reader().read() == ["two"]
    assert reader().read() == []


def test_files_rotated_while_nobody_looked_are_read_in_order(log: Path, reader: Start) -> None:
    write(log, "one")
    assert reader().read() == ["one"]
    write(log, "two")
    log.rename(f"{log}.2")
    write(Path(f"{log}.1"), "three")
    write(log, "four")
    order = (Path(f"{log}.2"), Path(f"{log}.1"), log)
    for seconds, path in enumerate(order, 1_700_000_000):
        os.utime(path, (seconds, seconds))
    assert reader().read() == ["two", "three", "four"]
    assert reader().read() == []


def test_a_copy_made_while_nobody_looked_is_read_from_the_place(log: Path, reader: Start) -> None:
    write(log, "one")
    assert reader().read() == ["one"]
    write(log, "two")
    shutil.copy(log, f"{log}.1")
    os.truncate(log, 0)
    write(log, "three three three")
    assert reader().read() == ["two", "three three three"]
    assert reader().read() == []


def test_a_copy_that_is_not_yet_cut_from_is_not_read_twice(log: Path, reader: Start) -> None:
    write(log, "one", "two")
    assert reader().read() == ["one", "two"]
    shutil.copy(log, f"{log}.1")
    reading = reader()
    assert reading.read() == []
    write(log, "three")
    shutil.copy(log, f"{log}.1")
    os.truncate(log, 0)
    assert reading.read() == ["three"]


def test_a_new_file_with_a_used_inode_is_not_mistaken(log: Path, reader: Start) -> None:
    write(log, "one", "two")
    first = reader()
    assert first.read() == ["one", "two"]
    first.followed.sources[0].rotated = True
    first.stop()
    # The same inode with other content is what a reused one looks like.
    log.write_text("other content, longer than what was there\n")
    again = Reader(log, first.followed.state.file.parent)
    assert again.read() == ["other content, longer than what was there"]
    again.stop()


def test_files_that_were_rotated_before_the_first_run_are_left_alone(
    log: Path, reader: Start
) -> None:
    write(Path(f"{log}.1"), "old")
    write(log, "new")
    reading = reader()
    assert reading.read() == ["new"]
    write(Path(f"{log}.1"), "late")
    log.rename(f"{log}.2")
    write(log, "newer")
    assert sorted(reading.read()) == ["late", "newer"]


def test_many_rotations_keep_few_files_open(log: Path, reader: Start) -> None:
    reading = reader()
    for number in range(30):
        write(log, f"line {number}")
        assert reading.read() == [f"line {number}"]
        log.rename(f"{log}.{number + 1}")
    write(log, "last")
    assert reading.read() == ["last"]
    assert sum(source.is_open for source in reading.followed.sources) < 12
    assert reader().read() == []


def test_many_rotations_while_nobody_looked_are_all_read(log: Path, reader: Start) -> None:
    write(log, "line 0")
    assert reader().read() == ["line 0"]
    for number in range(1, 30):
        log.rename(f"{log}.{number}")
        write(log, f"line {number}")
        os.utime(log, (number, number))
    assert reader().read() == [f"line {number}" for number in range(1, 30)]
    assert reader().read() == []


def test_a_second_collector_of_the_same_file_is_refused(log: Path, tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state", "cluster", "topic", log)
    with pytest.raises(Failure, match=f"by process {os.getpid()}"):
        StateFile(tmp_path / "state", "cluster", "topic", log)
    StateFile(tmp_path / "state", "cluster", "another topic", log).close()
    state.close()
    StateFile(tmp_path / "state", "cluster", "topic", log).close()


@pytest.mark.parametrize("content", [b"", b"{}", b"nonsense", b'{"topic": 1}'])
def test_a_broken_state_file_is_named(log: Path, tmp_path: Path, content: bytes) -> None:
    state = StateFile(tmp_path / "state", "cluster", "topic", log)
    state.file.write_bytes(content)
    state.close()
    with pytest.raises(Failure, match=r"\.json is not a collector's state"):
        StateFile(tmp_path / "state", "cluster", "topic", log)


@pytest.mark.parametrize(
    ("name", "rotated", "unrelated"),
    [
        (
            "app.log",
            "app.log.1 app.log-20240229 app.log.2024-02-29_12-00-00 app-1.log app.log.old "
            "app-2024-02-29T12-00-00.000.log app.log-20240229-1709208000",
            "app.log app.log.gz app.log.1.gz app-access.log app.log.bak app.log.swp apps.log.1",
        ),
        ("syslog", "syslog.1 syslog-20240229 syslog.old", "syslog syslog.conf syslogs.1"),
    ],
)
def test_rotated_names_are_told_from_others(name: str, rotated: str, unrelated: str) -> None:
    pattern = rotation_pattern(name)
    assert all(pattern.fullmatch(each) for each in rotated.split())
    assert not any(pattern.fullmatch(each) for each in unrelated.split())


@given(content=st.binary(min_size=1, max_size=3000), cut=st.integers(0, 3000))
def test_marks_of_what_was_read_are_those_of_the_file(content: bytes, cut: int) -> None:
    position = min(cut, len(content))
    with tempfile.TemporaryFile() as file:
        fd = file.fileno()
        os.write(fd, content)
        marks = Marks.of(position, content, content[:position])
        assert marks == Marks.read(fd, position)
        assert marks.hold_for(fd)
        if position:
            os.pwrite(fd, bytes([content[position - 1] ^ 1]), position - 1)
            assert not marks.hold_for(fd)


@given(st.text("0123456789abcdef", min_size=1, max_size=32), *[st.integers(0, 2**32 - 1)] * 3)
def test_a_position_header_comes_back(id: str, start: int, length: int, checksum: int) -> None:
    header = position_header(id, start, length, checksum)
    assert parse_position(header) == (id, start, length, checksum)


@given(st.binary(max_size=60))
def test_a_header_that_is_none_is_ignored(value: bytes) -> None:
    found = parse_position(value)
    assert found is None or position_header(*found) == value


def test_a_line_that_was_delivered_unfinished_is_sent_from_there_on(tmp_path: Path) -> None:
    file = tmp_path / "app.log"
    file.write_bytes(b"half a line\n")
    fd = os.open(file, os.O_RDONLY)
    source = Source.resume(fd, "id", 0, {0: (4, zlib.crc32(b"half"))})
    (piece,) = source.next_lines()
    assert source.arrived_part(piece) == 4
    assert source.arrived_part(Piece(4, piece.content[4:])) == 0
    source.close()
