"""Staging: what tasks and drivers of the sink do, by hand and step by step."""

from __future__ import annotations

import pyarrow as pa

from moldau.peer.retries import PeerSettings
from moldau.peer.view import parse_bootstrap
from moldau.spark.sink.commits import Decision
from moldau.spark.sink.committing import Committer
from moldau.spark.sink.stage import Stage
from moldau.spark.sink.staged import BatchName, Staged
from moldau.spark.sink.staging_settings import StagingSettings
from tests.spark.topics import Reachable, read_by_librdkafka


def staging(broker: Reachable) -> StagingSettings:
    peer = PeerSettings(first_backoff_s=0.005, retry_within_s=20.0)
    return StagingSettings(tuple(parse_bootstrap(broker.bootstrap)), peer)


def stage(settings: StagingSettings, batch: BatchName, topic: str, *values: str) -> Staged | None:
    """What a task of a process of its own does."""
    process = Stage(settings)
    opened = process.open(batch)
    if opened is None:
        return None
    opened.put(topic, pa.RecordBatch.from_pydict({"value": pa.array(values)}))
    opened.flush()
    process.close()
    return process.staged(batch, opened)


def staged(settings: StagingSettings, batch: BatchName, topic: str, *values: str) -> Staged:
    done = stage(settings, batch, topic, *values)
    assert done is not None
    return done


def put(process: Stage, batch: BatchName, topic: str, value: str) -> Staged:
    """What a task of a process that lives on does."""
    opened = process.open(batch)
    assert opened is not None
    opened.put(topic, pa.RecordBatch.from_pydict({"value": pa.array([value])}))
    opened.flush()
    return process.staged(batch, opened)


def decide(
    committer: Committer, batch: BatchName, *tasks: Staged, is_two_phase: bool = True
) -> None:
    """A driver that dies right after its decision: it ends nothing."""
    committer.read(batch.query)
    transactions = tuple(each.transaction for each in tasks)
    decision = Decision(batch.query, batch.run, batch.number, transactions, is_two_phase, 0)
    committer.log.append([decision])


def values(broker: Reachable, topic: str) -> list[str]:
    """What a read-committed consumer sees now."""
    return sorted(row["value"].decode() for row in read_by_librdkafka(broker, topic, 2))
