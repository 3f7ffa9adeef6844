"""Windows and joins that are open when a bounded run ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from moldau.testing import Broker
from tests.spark.pipeline.files import COUNTS, SOURCE, event, load, send, values
from tests.spark.topics import fresh_topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

JOINED = """
[sources.payments]
topic = "{topic}-payments"
schema = "time TIMESTAMP NOT NULL, name STRING, number INT"
watermark = {{ column = "time", delay = "10 seconds" }}
[tables.settled]
sql = '''
    SELECT o.name, p.number AS paid
    FROM events o LEFT JOIN payments p
    ON o.name = p.name AND p.time BETWEEN o.time AND o.time + INTERVAL 1 MINUTE
'''
[sinks.settled]
from = "settled"
type = "topic"
topic = "{topic}-settled"
key = "name"
[sinks.counted]
from = "counts"
type = "topic"
topic = "{topic}-counted"
"""


@pytest.mark.slow
def test_what_is_open_is_sent_once_and_only_when_it_is_complete(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    broker.create_topic(f"{topic}-payments", 1)
    pipeline = load(tmp_path, broker, topic, SOURCE, COUNTS, JOINED)

    def sent() -> tuple[list[Any], list[Any]]:
        settled = [(row["name"], row["paid"]) for row in values(broker, f"{topic}-settled")]
        counted = [
            (row["minute"][14:16], row["name"], row["events"])
            for row in values(broker, f"{topic}-counted")
        ]
        return sorted(settled, key=str), sorted(counted)

    send(broker, topic, [event(0, "a"), event(1, "a"), event(1, "b")])
    send(broker, f"{topic}-payments", [event(0, "other")])
    done = pipeline.run(once=True, spark=spark)
    assert sent() == ([], [])
    assert done["settled"].open_rows > 0
    assert done["counted"].open_rows == 2

    send(broker, f"{topic}-payments", [event(20, "a", 7)])
    pipeline.run(once=True, spark=spark)
    assert sent() == ([("a", 7), ("a", 7)], [])

    send(broker, topic, [event(300, "z")])
    send(broker, f"{topic}-payments", [event(300, "y")])
    pipeline.run(once=True, spark=spark)
    complete = ([("a", 7), ("a", 7), ("b", None)], [("00", "a", 2), ("00", "b", 1)])
    assert sent() == complete

    # Four records come too late; Spark sums up those of a group first, and drops two rows.
    send(broker, topic, [event(second, name) for second in (2, 3) for name in "ab"])
    done = pipeline.run(once=True, spark=spark)
    assert sent() == complete
    assert done["counted"].late_rows == 2

    # As they stand, for those who ask.
    pipeline.run(once=True, emit_open=True, spark=spark)
    settled, counted = sent()
    assert ("z", None) in settled
    assert ("05", "z", 1) in counted
