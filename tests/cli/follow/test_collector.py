"""`moldau produce --follow` as a process against a real broker: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from moldau.testing import Broker
from tests.cli.conftest import Run

WITHIN_S = 60.0


@contextmanager
def collector(
    broker: Broker, topic: str, state: Path, *words: str | Path
) -> Iterator[subprocess.Popen[str]]:
    command = ["produce", topic, "--bootstrap", broker.bootstrap, "--state", str(state)]
    process = subprocess.Popen(
        [sys.executable, "-m", "moldau", *command, "--follow", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def stop(process: subprocess.Popen[str]) -> tuple[str, str]:
    process.send_signal(signal.SIGTERM)
    return process.communicate(timeout=60)


class Topic:
    """A reader of everything that a topic has, partition by partition."""

    def __init__(self, broker: Broker, name: str, partitions: int = 3) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "fetch.queue.backoff.ms": 5,
            }
        )
        self._consumer.assign([TopicPartition(name, p, 0) for p in range(partitions)])
        self.values: list[str] = []
        self.headers: list[dict[str, bytes]] = []

    def wait_for(self, count: int) -> list[str]:
        """At least so many values; the ones that have come when time is up."""
        return self.wait_until(lambda: len(self.values) >= count)

    def wait_until(self, is_true: Callable[[], bool]) -> list[str]:
        deadline = time.monotonic() + WITHIN_S
        while not is_true() and time.monotonic() < deadline:
            self._take(0.1)
        return self.values

    def to_the_end(self, count: int) -> list[str]:
        """So many values, and those after them, if there are any."""
        self.wait_for(count)
        while self._take(0.3):
            pass
        return self.values

    def _take(self, wait: float) -> bool:
        for message in (messages := self._consumer.consume(500, wait)):
            if message.error():
                raise KafkaException(message.error())
            value = message.value()
            assert value is not None
            self.values.append(value.decode())
            self.headers.append(dict(message.headers() or ()))  # type: ignore[arg-type]
        return bool(messages)

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def arrived(moldau_session_broker: Broker, topic: str) -> Iterator[Topic]:
    reader = Topic(moldau_session_broker, topic)
    yield reader
    reader.close()


def write(path: Path, *lines: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_growing_and_rotating_files_arrive_line_by_line_and_in_order(
    moldau_session_broker: Broker, topic: str, arrived: Topic, tmp_path: Path
) -> None:
    first, second = tmp_path / "first.log", tmp_path / "second.log"
    write(first, "1", "2")
    state = tmp_path / "state"
    with collector(moldau_session_broker, topic, state, first, second) as process:
        assert arrived.wait_for(2) == ["1", "2"]
        write(second, "second")
        assert arrived.wait_for(3)[2:] == ["second"]
        write(first, "3")
        first.rename(f"{first}.1")
        write(first, "4")
        assert arrived.wait_for(5)[3:] == ["3", "4"]
        write(first, "5")
        shutil.copy(first, f"{first}.2")
        os.truncate(first, 0)
        write(first, "6")
        assert arrived.wait_for(7)[5:] == ["5", "6"]
        with open(first, "a") as file:
            file.write("unfinished")
        out, errors = stop(process)
    assert process.returncode == 0, errors
    assert out == f"{topic}: 7 messages delivered\n"
    write(first, " is finished")
    with collector(moldau_session_broker, topic, state, first, second) as process:
        assert arrived.wait_for(8)[7:] == ["unfinished is finished"]
        stop(process)
    assert arrived.to_the_end(8)[8:] == []
    assert arrived.headers[0]["moldau.file"] == str(first).encode()


@pytest.mark.slow
def test_kill_9_again_and_again_loses_and_doubles_no_line(
    moldau_session_broker: Broker, topic: str, arrived: Topic, tmp_path: Path
) -> None:
    """Written, renamed and cut all the while; killed at any moment, also while it recovers."""
    log, state = tmp_path / "app.log", tmp_path / "state"
    chance = random.Random(7)
    written: list[str] = []

    def write_some(count: int) -> None:
        lines = [f"{len(written) + n},{'x' * chance.randrange(60)}" for n in range(count)]
        written.extend(lines)
        write(log, *lines)

    write_some(2000)
    for turn in range(5):
        with collector(moldau_session_broker, topic, state, log, "--key-separator", ",") as process:
            goal = len(arrived.values) + chance.randrange(1, 1500)

            def enough(goal: int = goal) -> bool:
                write_some(chance.randrange(300))
                return len(arrived.values) >= goal

            arrived.wait_until(enough)
            if turn % 3 == 1:
                log.rename(f"{log}.{turn}")
            if turn % 3 == 2:
                write_some(50)
                shutil.copy(log, f"{log}.{turn}")
                os.truncate(log, 0)
            write_some(300)
            process.kill()
            process.communicate(timeout=60)
    with collector(moldau_session_broker, topic, state, log, "--key-separator", ",") as process:
        values = arrived.to_the_end(len(written))
        _, errors = stop(process)
    assert process.returncode == 0, errors
    assert sorted(values) == sorted(line.partition(",")[2] for line in written)
    places = [headers["moldau.position"] for headers in arrived.headers]
    assert len(set(places)) == len(written)


def test_a_broker_that_restarts_costs_no_line(tmp_path: Path, fresh_name: str) -> None:
    log = tmp_path / "app.log"
    with Broker() as broker:
        broker.create_topic(fresh_name)
        with collector(broker, fresh_name, tmp_path / "state", log) as process:
            before = Topic(broker, fresh_name, 1)
            write(log, "before")
            assert before.wait_for(1) == ["before"]
            before.close()
            broker.stop()
            write(log, *(f"meanwhile {n}" for n in range(500)))
            broker.start()
            after = Topic(broker, fresh_name, 1)
            assert after.to_the_end(501)[1:] == [f"meanwhile {n}" for n in range(500)]
            after.close()
            _, errors = stop(process)
        assert process.returncode == 0, errors


def test_a_line_that_is_not_what_it_should_be_stops_it_and_is_named(
    moldau_session_broker: Broker, topic: str, arrived: Topic, tmp_path: Path
) -> None:
    log, state = tmp_path / "app.log", tmp_path / "state"
    write(log, '{"value": "fine"}', "nonsense", '{"value": "after"}')
    with collector(moldau_session_broker, topic, state, log, "--json") as process:
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert json.loads(out) == {"topic": topic, "delivered": 1, "failed": 1}
    assert f"{log}, line at byte 18: not JSON" in errors
    log.write_text('{"value": "fine"}\n{"value": "now it is"}\n')
    with collector(moldau_session_broker, topic, state, log, "--json") as process:
        assert arrived.wait_for(2) == ["fine", "now it is"]
        stop(process)


def test_a_second_collector_is_refused(
    moldau: Run, moldau_session_broker: Broker, topic: str, tmp_path: Path
) -> None:
    log, state = tmp_path / "app.log", tmp_path / "state"
    with collector(moldau_session_broker, topic, state, log) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("following ")
        again = moldau("produce", topic, "--follow", str(log), "--state", str(state))
        assert again.status == 1
        assert f"by process {process.pid}" in again.err
        stop(process)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--follow",), "name the files to follow"),
        (("some.log",), "need --follow"),
        (("--state", "."), "need --follow"),
        (("--follow", "some.log", "--acks", "1"), "needs --acks all"),
        (("--follow", "some.log", "--timeout", "3"), "--timeout cannot be used"),
        (("--follow", "no-such-folder/some.log"), "no-such-folder is not a folder"),
        (("--follow", "/"), "is not a regular file"),
        (("--follow", "some.log", "--file", __file__), "cannot be used together"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(
    moldau: Run, topic: str, words: tuple[str, ...], said: str
) -> None:
    ended = moldau("produce", topic, *words)
    assert ended.status == 2
    assert said in " ".join(ended.err.replace("│", " ").split())
