"""Compaction: how fast it is, what memory it takes, and what a producer notices of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.scale import amounts_of
from bench.tasks import PacedRequests, RoundTrips
from moldau.bench.broker import BrokerUnderTest
from moldau.bench.errors import BenchFailed
from moldau.bench.offline import open_logs
from moldau.bench.results import Row, Target, figure, percentile
from moldau.bench.tasks import RequestFlow, SmallRequests
from moldau.bench.workbench import Workbench
from moldau.log.compaction.candidates import candidate, job_of
from moldau.log.compaction.job import Job, Outcome
from moldau.log.compaction.swap import swap
from moldau.log.config import LogConfig
from moldau.log.flushes.flushing import prepare_flush
from moldau.log.log import Log
from moldau.log.retention import roll_if_due
from moldau.records.record import Record, build_batch

_MESSAGE_SIZE = 100
_SEGMENT_BYTES = 64 << 20
_MAP_BYTES = 128 << 20
_UNLIMITED = 1e15
_ROUND_TIMEOUT_S = 600
_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(_SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
}
_SETTINGS = ("log.cleaner.backoff.ms=50",)
_LAG = "min.compaction.lag.ms"
_HELD_BACK = str(7 * 86_400_000)


def measure_compaction(bench: Workbench) -> Iterator[Row]:
    yield _speed(bench)
    yield _beside_a_producer(bench)


def _speed(bench: Workbench) -> Row:
    """Workers alone, one round after another until the log is clean."""
    keys = amounts_of(bench.scale).compaction_keys
    bench.say(f"compaction: writing {keys:,} keys")
    seconds = 0.0
    rounds = 0
    memory_mib = 0.0
    read = 0
    with bench.stopped_topic({}) as (folder, topic), open_logs(folder) as store:
        log = store.logs[topic, 0]
        log.config = LogConfig.parse(_CONFIG, LogConfig())
        _fill_keys(log, keys, _MESSAGE_SIZE)
        _seal(log)
        while (chosen := candidate(log, time.time_ns() // 1_000_000)) is not None:
            bench.say(f"compaction: {log.clean_end:,} of {log.log_end:,} offsets are clean")
            job = job_of(chosen, "bench", time.time_ns() // 1_000_000, _MAP_BYTES, _UNLIMITED, 0)
            started = time.monotonic()
            outcome, used_mib = _run_worker(job)
            seconds += time.monotonic() - started
            memory_mib = max(memory_mib, used_mib)
            read += outcome.read_bytes
            rounds += 1
            if outcome.error or not swap(chosen, job, outcome):
                raise BenchFailed(f"compaction failed: {outcome.error}")
    return Row(
        "compaction",
        f"{keys:,} keys, {_MESSAGE_SIZE} B messages",
        (
            figure("data read and written anew", "MB/s", [read / seconds / 1e6]),
            figure("rounds that the key map needs", "", [float(rounds)]),
            figure("memory of the worker", "MiB", [memory_mib], Target(200)),
        ),
    )


def _seal(log: Log) -> None:
    """Closes and flushes everything, since only that is compacted."""
    roll_if_due(log, 1 << 60)
    flush = prepare_flush(log)
    if flush is not None:
        flush.run()
        flush.done()


def _run_worker(job: Job) -> tuple[Outcome, float]:
    """What a worker answers, and the most memory that it had, in MiB."""
    command = [sys.executable, "-m", "moldau.log.compaction.worker"]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        worker.stdin.write(msgspec.json.encode(job))
        worker.stdin.close()
        output = worker.stdout.read()
    except BaseException:
        worker.kill()
        raise
    finally:
        worker.stdout.close()
        _, status, usage = os.wait4(worker.pid, 0)
        worker.returncode = os.waitstatus_to_exitcode(status)
    if worker.returncode:
        raise BenchFailed(f"the worker ended with {worker.returncode}")
    return msgspec.json.decode(output, type=Outcome), usage.ru_maxrss / 1024


def _beside_a_producer(bench: Workbench) -> Row:
    """A producer at half its own peak rate, without compaction and beside it."""
    quiet: list[float] = []
    busy: list[float] = []
    rates: list[float] = []
    for sample in range(bench.scale.repeats):
        bench.say(f"compaction beside a producer: sample {sample + 1} of {bench.scale.repeats}")
        with bench.stopped_topic({**_CONFIG, _LAG: _HELD_BACK}) as (folder, topic):
            with open_logs(folder) as store:
                log = store.logs[topic, 0]
                log.config = LogConfig.parse(_CONFIG, LogConfig())
                _fill_keys(log, amounts_of(bench.scale).compaction_beside_keys, _MESSAGE_SIZE)
                _seal(log)
                end = log.log_end
            broker = bench.start_broker(data_dir=folder, settings=_SETTINGS)
            broker.wait_ready()
            rate, trips, begun = _paced(bench, broker, folder, topic, end)
            broker.discard()
        rates.append(rate)
        took = list(zip(trips.sent_s, trips.took_s, strict=True))
        quiet.append(percentile([t for sent, t in took if sent < begun], 99) * 1000)
        busy.append(percentile([t for sent, t in took if sent >= begun], 99) * 1000)
    ratios = [with_it / without for with_it, without in zip(busy, quiet, strict=True)]
    return Row(
        "compaction",
        "Produce of 100 B at half the peak rate",
        (
            figure("rate", "req/s", rates),
            figure("p99 without compaction", "ms", quiet),
            figure("p99 beside compaction", "ms", busy),
            figure("beside to without", "x", ratios, Target(2.0)),
        ),
    )


def _paced(
    bench: Workbench, broker: BrokerUnderTest, folder: Path, topic: str, end: int
) -> tuple[float, RoundTrips, float]:
    """The rate, all round trips, and when compaction began."""
    hot = bench.new_topic()
    broker.create_topic(hot)
    peak = bench.children.run(
        SmallRequests(
            broker.host, broker.port, hot, broker.pid, _MESSAGE_SIZE, 1, bench.scale.requests_s, 0.1
        ),
        RequestFlow,
    )
    rate = max(1, int(peak.requests / peak.seconds / 2))
    # Whatever the first such request costs is not compaction's.
    broker.alter_topic(topic, {_LAG: _HELD_BACK})
    paced = bench.children.begin(PacedRequests(broker.host, broker.port, hot, _MESSAGE_SIZE, rate))
    paced.line(timeout_s=30)
    time.sleep(bench.scale.requests_s)
    begun = time.monotonic()
    broker.alter_topic(topic, {_LAG: "0"})
    deadline = begun + _ROUND_TIMEOUT_S
    while _clean_up_to(folder, topic) < end:
        if time.monotonic() > deadline:
            raise BenchFailed(f"{topic} is not compacted:\n{broker.child.log_tail()}")
        time.sleep(0.02)
    paced.close_input()
    trips = paced.answer(RoundTrips, timeout_s=60)
    paced.stop()
    return float(rate), trips, begun


def _clean_up_to(folder: Path, topic: str) -> int:
    path = folder / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return next((int(line.split()[2]) for line in lines if line.split()[0] == topic), 0)


def _fill_keys(log: Log, keys: int, message_size: int = 100, per_batch: int = 1000) -> None:
    """Append one message for each of that many keys, and a second one for every other key."""
    now_ms = time.time_ns() // 1_000_000
    value = b"m" * message_size
    for step in (1, 2):
        for start in range(0, keys, per_batch * step):
            numbers = range(start, min(start + per_batch * step, keys), step)
            batch = build_batch(
                Record(place, now_ms, b"key-%09d" % number, value, ())
                for place, number in enumerate(numbers)
            )
            log.append(memoryview(batch), 0, now_ms)
            log.commit()
    log.advance_high_watermark(log.log_end)
