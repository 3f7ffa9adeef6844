"""Kafka Streams, exactly once: a word count that is killed and started again."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from bench.kafka.jars import KAFKA_VERSION, Artifact, fetch, java
from moldau.bench.errors import Unavailable
from moldau.testing import Broker, Cluster, Ensemble
from tests.processes import started

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

WITHIN_S = 180.0
_PROGRAM = Path(__file__).parent / "CountWords.java"
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    # Fewer partitions to lead, load and copy.
    "transaction.state.log.num.partitions": 5,
    "offsets.topic.num.partitions": 5,
}
WORDS = ("tea", "milk", "sugar", "cup", "spoon")
PARTITIONS = 2


class App:
    """The program, as often as it is started."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        try:
            self._java = java()
            wanted = [Artifact("org.apache.kafka", "kafka-streams", KAFKA_VERSION)]
            self._jars = fetch(f"streams-{KAFKA_VERSION}", wanted)
        except Unavailable as reason:
            pytest.skip(f"cannot run Kafka Streams: {reason}")

    @contextmanager
    def run(self) -> Iterator[subprocess.Popen[str]]:
        """One life of it; it ends with the block at the latest."""
        words = [self._java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        words += ["-cp", f"{self._jars}/*", str(_PROGRAM), self._bootstrap, "words"]
        words += ["lines", "counts", str(self._folder / "state")]
        with (
            open(self._folder / "app.log", "a", encoding="utf-8") as log,
            started(words, stdout=log, stderr=log) as process,
        ):
            yield process

    def said(self) -> str:
        return (self._folder / "app.log").read_text("utf-8")[-4000:]


class Counts:
    """What a read-committed consumer sees of the counts, word by word, from the beginning on."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: dict[str, list[int]] = {word: [] for word in WORDS}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "check",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.assign([TopicPartition("counts", n, 0) for n in range(PARTITIONS)])

    @property
    def total(self) -> int:
        return sum(map(len, self.seen.values()))

    def read_until(self, total: int, process: subprocess.Popen[str]) -> None:
        """Reads on; fails when the program ends by itself or takes too long."""
        deadline = time.monotonic() + WITHIN_S
        while self.total < total:
            assert time.monotonic() < deadline, f"{self.total} counts in {WITHIN_S:g} s"
            assert process.poll() is None, f"the program has ended: {process.returncode}"
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN), error
                continue
            word, count = (message.key() or b"").decode(), int(message.value() or b"0")
            self.seen[word].append(count)

    def close(self) -> None:
        self._consumer.close()


def send(producer: Producer, sent: Counter[str], lines: int) -> None:
    for number in range(lines):
        words = [WORDS[number % 5], WORDS[number % 3], WORDS[number % 2]]
        sent.update(words)
        producer.produce("lines", " ".join(words), partition=number % PARTITIONS)
    assert producer.flush(WITHIN_S) == 0


def count_words(bootstrap: str, folder: Path, disturb: Callable[[], None]) -> None:
    """Kill the program in the middle of it twice, and see every count once and in order."""
    app, counts, sent = App(bootstrap, folder), Counts(bootstrap), Counter[str]()
    producer = Producer({"bootstrap.servers": bootstrap})
    try:
        for life in range(3):
            send(producer, sent, 300)
            with app.run() as process:
                if life == 1:
                    counts.read_until(sent.total() - 800, process)
                    disturb()
                counts.read_until(sent.total() - (0 if life == 2 else 500), process)
                process.send_signal(signal.SIGKILL)
                process.wait(WITHIN_S)
        assert {word: list(range(1, sent[word] + 1)) for word in WORDS} == counts.seen
    except BaseException as problem:
        problem.add_note(app.said())
        raise
    finally:
        counts.close()


def test_words_are_counted_exactly_once_on_one_broker(tmp_path: Path) -> None:
    with Broker(SETTINGS) as broker:
        for topic in ("lines", "counts"):
            broker.create_topic(topic, partitions=PARTITIONS)
        count_words(broker.bootstrap, tmp_path, lambda: None)


def test_words_are_counted_exactly_once_on_a_cluster_whose_leader_dies(
    tmp_path: Path, ensemble: Ensemble
) -> None:
    with Cluster(3, ensemble, SETTINGS | {"default.replication.factor": 3}) as cluster:
        for topic in ("lines", "counts"):
            cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)

        def restart_one() -> None:
            victim = cluster.leader_of("counts")
            cluster.kill(victim)
            cluster.start(victim)

        count_words(cluster.bootstrap, tmp_path, restart_one)
