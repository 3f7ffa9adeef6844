"""The collector with a producer that the test acknowledges for: when places move, and when not."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from moldau.cli.follow import collector as module
from moldau.cli.follow.collector import Collector
from moldau.cli.follow.followed import Followed
from moldau.cli.follow.read_back import parse_position
from moldau.cli.follow.state import State, StateFile
from moldau.cli.views.messages import Outgoing
from moldau.cli.views.output import Failure
from moldau.testing.waiting import until

WITHIN_S = 60.0


class Acknowledged:
    """What a delivery report says of a message."""

    def __init__(self, partition: int, offset: int) -> None:
        self._place = partition, offset

    def partition(self) -> int:
        return self._place[0]

    def offset(self) -> int:
        return self._place[1]


class StubProducer:
    """Keeps what is sent; `acknowledge` answers for one message at the collector's next poll."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, dict[str, Any], Callable[..., None]]] = []
        self._answers: list[tuple[int, int, int, KafkaError | None]] = []

    def produce(
        self, topic: str, value: bytes, key: bytes | None, partition: int, **more: Any
    ) -> None:
        self.sent.append((value, dict(more["headers"]), more["on_delivery"]))

    def acknowledge(
        self, number: int, partition: int = 0, offset: int = 0, error: KafkaError | None = None
    ) -> None:
        self._answers.append((number, partition, offset, error))

    def poll(self, timeout: float) -> None:
        while self._answers:
            number, partition, offset, error = self._answers.pop(0)
            self.sent[number][2](error, Acknowledged(partition, offset))

    def flush(self, timeout: float) -> int:
        self.poll(0)
        return 0

    def __len__(self) -> int:
        return len(self.sent)

    @property
    def values(self) -> list[bytes]:
        return [value for value, _, _ in self.sent]


class Running:
    """A collector of one file, in a thread."""

    def __init__(self, log: Path, state: Path, arrived: dict[str, Any] | None = None) -> None:
        self.producer = StubProducer()
        self.followed = Followed(log, StateFile(state, "cluster", "topic", log))
        self.followed.resume(arrived or {}, {0: 100, 1: 100})
        self.stop = threading.Event()
        self.problem: Failure | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        producer: Any = self.producer
        collecting = Collector(
            producer,
            "topic",
            [self.followed],
            parse=lambda line: Outgoing(None, line, []),
            headers=[],
            place=lambda followed, message: None,
        )
        self.problem = collecting.run(self.stop)

    @property
    def saved(self) -> State:
        state = self.followed.state._load()
        assert state is not None
        return state

    def end(self) -> State:
        self.stop.set()
        self.join()
        self.followed.close()
        return self.saved

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET_S", 0.2)
    monkeypatch.setattr(module, "SAVE_EVERY_S", 0.0)
    monkeypatch.setattr(module, "LONGEST_WAIT_S", 0.05)


@contextmanager
def running(log: Path, state: Path, **more: Any) -> Iterator[Running]:
    collecting = Running(log, state, **more)
    try:
        yield collecting
    finally:
        collecting.stop.set()
        collecting.join()


def test_the_place_moves_only_over_lines_that_are_delivered_without_a_gap(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("one\ntwo\nthree\n")
    with running(log, tmp_path / "state") as collecting:
        until(lambda: len(collecting.producer.sent) == 3)
        assert collecting.saved.files[0].place.position == 0
        assert not collecting.saved.clean
        collecting.producer.acknowledge(0, partition=0, offset=100)
        collecting.producer.acknowledge(2, partition=1, offset=100)
        until(lambda: collecting.saved.files[0].place.position == 4)
        # The third is there, but the second is not: what lies behind is looked at again.
        assert collecting.saved.offsets == {"0": 101, "1": 100}
        collecting.producer.acknowledge(1, partition=0, offset=101)
        until(lambda: collecting.saved.files[0].place.position == 14)
        assert collecting.saved.offsets == {"0": 102, "1": 101}
        ended = collecting.end()
    assert ended.clean
    assert collecting.problem is None


def test_a_file_is_known_before_its_first_line_is_sent(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("one\n")
    with running(log, tmp_path / "state") as collecting:
        until(lambda: len(collecting.producer.sent) == 1)
        position = parse_position(collecting.producer.sent[0][1]["moldau.position"])
        assert position is not None
        assert position[0] == collecting.saved.files[0].id


def test_what_was_read_back_is_not_sent_again_and_is_remembered_until_it_is_passed(
    tmp_path: Path,
) -> None:
    log, state = tmp_path / "app.log", tmp_path / "state"
    log.write_text("one\ntwo\nthree\n")
    with running(log, state) as first:
        until(lambda: len(first.producer.sent) == 3)
        positions = [
            parse_position(headers["moldau.position"]) for _, headers, _ in first.producer.sent
        ]
        assert not first.end().clean
        assert first.problem is not None
        assert first.problem.message == "3 lines were not delivered in time"
    assert positions[1] is not None
    id, start, length, checksum = positions[1]
    with running(log, state, arrived={id: {start: (length, checksum)}}) as second:
        until(lambda: second.producer.values == [b"one", b"three"])
        second.producer.acknowledge(1, partition=0, offset=150)
        until(lambda: all(line.done for line in list(second.followed.under_way)[1:]))
        assert second.saved.files[0].place.position == 0
        assert second.saved.offsets == {"0": 100, "1": 100}
        second.producer.acknowledge(0, partition=0, offset=151)
        until(lambda: second.saved.files[0].place.position == 14)
        assert second.end().clean


def test_the_unfinished_end_of_a_rotated_file_is_sent_when_it_has_been_quiet(
    tmp_path: Path,
) -> None:
    log = tmp_path / "app.log"
    log.write_text("one\nhalf")
    with running(log, tmp_path / "state") as collecting:
        until(lambda: collecting.producer.values == [b"one"])
        log.rename(f"{log}.1")
        until(lambda: collecting.producer.values == [b"one", b"half"])


def test_a_deleted_file_is_let_go_when_all_of_it_is_delivered(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("one\n")
    with running(log, tmp_path / "state") as collecting:
        until(lambda: len(collecting.producer.sent) == 1)
        log.unlink()
        until(lambda: not collecting.followed.sources)
        assert len(collecting.saved.files) == 1
        collecting.producer.acknowledge(0)
        until(lambda: not collecting.saved.files)


def test_a_line_that_is_refused_stops_it_and_is_sent_again_later(tmp_path: Path) -> None:
    log, state = tmp_path / "app.log", tmp_path / "state"
    log.write_text("one\ntwo\n")
    with running(log, state) as collecting:
        until(lambda: len(collecting.producer.sent) == 2)
        collecting.producer.acknowledge(0, offset=100)
        collecting.producer.acknowledge(1, error=KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        collecting.join()
        assert collecting.problem is not None
        assert f"{log}, line that ends at byte 8" in collecting.problem.message
        assert "too large" in collecting.problem.message
        ended = collecting.end()
    assert (ended.clean, ended.files[0].place.position) == (False, 4)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    os.mkfifo(log)
    followed = Followed(log, StateFile(tmp_path / "state", "cluster", "topic", log))
    with pytest.raises(Failure, match=r"app\.log cannot be read: it is not a regular file"):
        followed.resume({}, {})
    followed.close()
