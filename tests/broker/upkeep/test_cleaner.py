"""Compaction in a running broker, under load, through restarts and kills."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.broker.broker_process import BrokerProcess
from tests.clients.segments import stored_bytes

WITHIN_S = 60.0
KEYS = 50
CLEANER: dict[str, Any] = {"log_cleaner_backoff_ms": 20, "log_retention_check_interval_ms": 100}
CONFIG: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": 20_000,
    "min_cleanable_dirty_ratio": 0.01,
}


class Writer:
    """Writes numbered values of random keys and knows the newest of each."""

    def __init__(self, bootstrap: str, seed: int = 0) -> None:
        self._dice = random.Random(seed)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 50,
                "linger.ms": 1,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "message.timeout.ms": int(WITHIN_S * 1000),
                "log_level": 0,
            }
        )
        self.newest: dict[bytes, bytes | None] = {}
        self._count = 0
        self._errors: list[str] = []

    def write(self, count: int, topic: str = "t", *, tombstones: bool = False) -> None:
        for _ in range(count):
            key = b"key %d" % self._dice.randrange(KEYS)
            is_tombstone = tombstones and self._dice.random() < 0.2
            value = None if is_tombstone else b"%d " % self._count + b"x" * self._dice.randrange(80)
            self._count += 1
            self.newest[key] = value
            self._producer.produce(topic, value, key, partition=0, on_delivery=self._delivered)
            self._producer.poll(0)

    def finish(self) -> None:
        assert self._producer.flush(WITHIN_S) == 0
        assert self._errors == []

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._errors.append(str(error))


def read_all(bootstrap: str, topic: str = "t") -> list[tuple[bytes, bytes | None]]:
    """Every record from the beginning to what is the end now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "-",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    place = TopicPartition(topic, 0, OFFSET_BEGINNING)
    found: list[tuple[bytes, bytes | None]] = []
    try:
        end = consumer.get_watermark_offsets(place, timeout=WITHIN_S)[1]
        consumer.assign([place])
        deadline = time.monotonic() + WITHIN_S
        last = -1
        while last < end - 1 and consumer.position([place])[0].offset < end:
            for message in consumer.consume(500, 0.1):
                assert message.error() is None, message.error()
                offset = int(message.offset() or 0)
                assert offset > last
                last = offset
                if offset < end:
                    found.append((message.key() or b"", message.value()))
            assert time.monotonic() < deadline
    finally:
        consumer.close()
    return found


def clean_up_to(folder: Path, topic: str = "t") -> int:
    """How far the cleaner says that it has got."""
    path = folder / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return next((int(line.split()[2]) for line in lines if line.split()[0] == topic), 0)


def wait_clean(folder: Path, offset: int) -> None:
    until(lambda: clean_up_to(folder) >= offset, f"it is clean up to {offset}")


def size_of(folder: Path, topic: str = "t") -> int:
    return stored_bytes(folder / f"{topic}-0")


def create(bootstrap: str, topic: str = "t", **more: object) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    configs = {key.replace("_", "."): str(value) for key, value in {**CONFIG, **more}.items()}
    for outcome in admin.create_topics([NewTopic(topic, 1, config=configs)]).values():
        outcome.result(WITHIN_S)


@pytest.mark.slow
def test_a_compacted_topic_under_load_converges_and_readers_always_see_the_newest() -> None:
    with Broker(**CLEANER) as broker:
        broker.create_topic("t", **CONFIG)
        writer = Writer(broker.bootstrap)
        for _ in range(12):
            writer.write(1000, tombstones=True)
            writer.finish()
            assert dict(read_all(broker.bootstrap)) == writer.newest
        written = size_of(broker.data_dir)
        until(lambda: clean_up_to(broker.data_dir) > 11_000, "most of the log is clean")
        until(lambda: size_of(broker.data_dir) < 60_000, f"{written} bytes get fewer")
        records = read_all(broker.bootstrap)
        assert dict(records) == writer.newest
        # The last thousand at most are not clean, and before them there is one record a key.
        assert len(records) < 2000


@pytest.mark.slow
def test_what_was_compacted_outlives_restarts(tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path, **CLEANER)
    with broker:
        broker.create_topic("t", **CONFIG)
        writer = Writer(broker.bootstrap)
        writer.write(3000)
        writer.finish()
        until(lambda: clean_up_to(tmp_path) > 1000, "it is compacted")
    before = clean_up_to(tmp_path)
    with broker:
        assert dict(read_all(broker.bootstrap)) == writer.newest
        writer.write(3000)
        writer.finish()
        until(lambda: clean_up_to(tmp_path) > before + 2000, "it goes on")
        assert dict(read_all(broker.bootstrap)) == writer.newest


@pytest.mark.parametrize("policy", [{}, {"flush_messages": 1}], ids=["no policy", "flush"])
@pytest.mark.slow
def test_a_broker_killed_during_compaction_loses_nothing(
    tmp_path: Path, policy: dict[str, Any]
) -> None:
    settings = ["log.cleaner.backoff.ms=5", "log.flush.offset.checkpoint.interval.ms=60000"]
    port = 0
    writer: Writer | None = None
    for kill in range(6):
        with BrokerProcess(tmp_path / "data", settings, port) as process:
            port = process.port
            bootstrap = f"127.0.0.1:{port}"
            if writer is None:
                create(bootstrap, **policy)
                writer = Writer(bootstrap)
            assert dict(read_all(bootstrap)) == writer.newest
            before = clean_up_to(tmp_path / "data")
            writer.write(1500)
            writer.finish()
            if kill % 2:
                # In the middle of a round, or just behind it.
                wait_clean(tmp_path / "data", before + 1)
            process.stop(signal.SIGKILL)
    with BrokerProcess(tmp_path / "data", settings, port) as process:
        assert writer is not None
        assert dict(read_all(f"127.0.0.1:{port}")) == writer.newest
        assert "offline" not in process.log.replace("0 offline", "")
        assert process.stop() == 0
    names = os.listdir(tmp_path / "data" / "t-0")
    assert not [name for name in names if name.endswith(".swap")]


class Workers:
    """Stands for `subprocess.Popen` in the broker and spoils the first workers."""

    def __init__(self, spoil: Callable[[list[str]], list[str]], count: int) -> None:
        self._real = subprocess.Popen
        self._spoil = spoil
        self.left = count

    def __call__(self, words: list[str], **more: object) -> subprocess.Popen[bytes]:
        if self.left and "moldau.log.compaction.worker" in words:
            self.left -= 1
            words = self._spoil(words)
        return self._real(words, **more)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize(
    "instead",
    ["import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "raise SystemExit('no')", "1 / 0"],
)
def test_a_worker_that_dies_costs_nothing_but_time(
    monkeypatch: pytest.MonkeyPatch, instead: str
) -> None:
    workers = Workers(lambda words: [sys.executable, "-c", instead], 2)
    monkeypatch.setattr("moldau.broker.upkeep.cleaner.subprocess.Popen", workers)
    with Broker(**CLEANER) as broker:
        broker.create_topic("t", **CONFIG)
        writer = Writer(broker.bootstrap)
        writer.write(2000)
        writer.finish()
        until(lambda: clean_up_to(broker.data_dir) > 500, "a later worker does the work")
        assert workers.left == 0
        assert dict(read_all(broker.bootstrap)) == writer.newest


def test_damage_that_a_worker_meets_takes_that_partition_offline_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Broker(**CLEANER, log_cleaner_enable=True) as broker:
        broker.create_topic("t", **{**CONFIG, "min_compaction_lag_ms": 3_600_000})
        broker.create_topic("other")
        writer = Writer(broker.bootstrap)
        writer.write(1000)
        writer.finish()
        segment = broker.data_dir / "t-0" / "00000000000000000000.log"
        with segment.open("r+b") as file:
            file.seek(200)
            byte = file.read(1)[0]
            file.seek(200)
            file.write(bytes([byte ^ 8]))
        _alter(broker, "min.compaction.lag.ms", "0")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "retries": 0})
        errors: list[int] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            errors.extend([error.code()] if error is not None else [])

        def is_refused() -> bool:
            producer.produce("t", b"x", b"k", on_delivery=delivered)
            producer.flush(WITHIN_S)
            return bool(errors)

        until(is_refused, "the partition is offline")
        assert set(errors) == {KafkaError.KAFKA_STORAGE_ERROR}
        assert any("position 0" in line and str(segment) in line for line in caplog.messages)
        producer.produce("other", b"x")
        assert producer.flush(WITHIN_S) == 0


def test_a_record_without_a_key_is_refused() -> None:
    with Broker() as broker:
        broker.create_topic("t", cleanup_policy="compact")
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        errors: list[int] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            errors.extend([error.code()] if error is not None else [])

        producer.produce("t", b"x", on_delivery=delivered)
        assert producer.flush(WITHIN_S) == 0
        assert errors == [KafkaError.INVALID_RECORD]


def _alter(broker: Broker, name: str, value: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[entry])
    for outcome in admin.incremental_alter_configs([resource]).values():
        outcome.result(WITHIN_S)
