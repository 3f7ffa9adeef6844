"""Pipeline files for tests, and what they leave."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from moldau.spark.pipeline import Pipeline
from moldau.testing import Broker
from tests.spark.topics import Sent, produce, read_by_librdkafka

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)

SOURCE = """
[sources.events]
topic = "{topic}"
schema = "time TIMESTAMP NOT NULL, name STRING, number INT"
watermark = {{ column = "time", delay = "10 seconds" }}
"""
RAW = """
[sinks.raw]
from = "events"
type = "delta"
path = "lake/raw"
"""
COUNTS = """
[tables.counts]
sql = '''
    SELECT window.start AS minute, name, count(*) AS events, sum(number) AS total
    FROM events
    GROUP BY window(time, '1 minute'), name
'''
"""


def load(folder: Path, broker: Broker, topic: str, *parts: str) -> Pipeline:
    """A pipeline with these parts, in which {topic} stands for a source's topic."""
    path = folder / "test.toml"
    path.write_text("".join(part.format(topic=topic) for part in parts), "utf-8")
    return Pipeline.load(path, bootstrap=broker.bootstrap)


def event(second: float, name: str = "a", number: Any = 1) -> Sent:
    time = (NOON + timedelta(seconds=second)).isoformat()
    return None, json.dumps({"time": time, "name": name, "number": number}).encode(), []


def send(broker: Broker, topic: str, events: Iterable[Sent], **more: Any) -> None:
    produce(broker, topic, events, **more)


def table(path: Path) -> list[dict[str, Any]]:
    """The rows of a Delta table, in no order."""
    from deltalake import DeltaTable

    rows: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return rows


def values(broker: Broker, topic: str, partitions: int = 1) -> list[dict[str, Any]]:
    """The JSON values of a topic's records."""
    return [json.loads(row["value"]) for row in read_by_librdkafka(broker, topic, partitions)]


def headers(row: Mapping[str, Any]) -> dict[str, bytes]:
    return {item["key"]: item["value"] for item in row["headers"]}
