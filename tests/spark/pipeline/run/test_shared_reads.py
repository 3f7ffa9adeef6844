"""One read for several sinks: a source is fetched once, and each sink has all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from moldau.spark.formats.shared_batches import folder_of
from moldau.spark.pipeline import PipelineError
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.http.scraping import Scrape
from tests.spark.pipeline.files import SOURCE, event, load, send, table
from tests.spark.topics import Sent, fresh_topic, read_by_librdkafka

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

SINKS = """
[tables.doubled]
sql = "SELECT name, 2 * number AS number FROM events"

[sinks.raw]
from = "events"
type = "delta"
path = "lake/raw"

[sinks.doubled]
from = "doubled"
type = "delta"
path = "lake/doubled"

[sinks.latest]
from = "events"
type = "delta"
path = "lake/latest"
keys = ["name"]
"""
BAD: Sent = (b"key", b"nonsense", [])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http_listen="127.0.0.1:0") as broker:
        yield broker


def sent(broker: Broker, topic: str) -> tuple[float, float]:
    """How many bytes of a topic came in, and how many went out."""
    scrape = Scrape(broker.http_url)
    traffic = "kafka_server_brokertopicmetrics_"
    return (
        scrape.value(f"{traffic}bytesin_total", topic=topic),
        scrape.value(f"{traffic}bytesout_total", topic=topic),
    )


def numbers(folder: Path, name: str) -> list[int]:
    return sorted(row["number"] for row in table(folder / "lake" / name))


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what the sinks of a run share."""
    run = uuid4()
    monkeypatch.setattr("moldau.spark.pipeline.pipeline.uuid4", lambda: run)
    return folder_of(run.hex)


def test_three_sinks_fetch_their_source_once(
    spark: SparkSession, broker: Broker, tmp_path: Path, shared: Path
) -> None:
    topic = fresh_topic(broker, 2)
    pipeline = load(tmp_path, broker, topic, SOURCE, SINKS)
    events = [event(n % 50, f"name {n % 7}", n) for n in range(2000)]
    send(broker, topic, [*events[:1000], BAD, *events[1000:]])
    done = pipeline.run(once=True, spark=spark)
    came, went = sent(broker, topic)
    assert came <= went < 1.5 * came
    assert numbers(tmp_path, "raw") == list(range(2000))
    assert numbers(tmp_path, "doubled") == list(range(0, 4000, 2))
    assert len(table(tmp_path / "lake" / "latest")) == 7
    assert sum(each.dead_letters for each in done.values()) == 1
    (letter,) = read_by_librdkafka(broker, f"{topic}-dead-letters")
    assert (letter["key"], letter["value"]) == (b"key", b"nonsense")
    assert not shared.exists()


def test_sinks_at_different_paces_each_have_everything(
    spark: SparkSession, broker: Broker, tmp_path: Path, shared: Path
) -> None:
    """Batches of one sink begin and end elsewhere than those of the others."""
    topic = fresh_topic(broker)
    paces = SINKS.replace('type = "delta"\npath = "lake/doubled"', _PACED)
    pipeline = load(tmp_path, broker, topic, "trigger = '100 milliseconds'\n", SOURCE, paces)
    with pipeline.start(spark) as running:
        for start in range(0, 1000, 100):
            send(
                broker,
                topic,
                [event(n % 50, f"name {n % 7}", n) for n in range(start, start + 100)],
            )
        send(broker, topic, [BAD])

        def is_all_there() -> bool:
            running._follow(None)
            return all(each.rows == 1001 for each in running.progress.values())

        until(is_all_there, "all sinks have read everything", 120)
        assert shared.exists()
    assert numbers(tmp_path, "raw") == list(range(1000))
    assert numbers(tmp_path, "doubled") == list(range(0, 2000, 2))
    newest: dict[str, Any] = {row["name"]: row["number"] for row in table(tmp_path / "lake/latest")}
    assert newest == {f"name {n % 7}": n for n in range(993, 1000)}
    assert len(read_by_librdkafka(broker, f"{topic}-dead-letters")) == 1
    assert not shared.exists()


_PACED = 'type = "delta"\npath = "lake/doubled"\ntrigger = "700 milliseconds"'


def test_a_bad_record_without_a_topic_for_it_stops_whichever_sink_reads_it(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = fresh_topic(broker)
    source = SOURCE + "dead_letters = false\n"
    pipeline = load(tmp_path, broker, topic, source, SINKS)
    send(broker, topic, [event(1), BAD])
    with pytest.raises(PipelineError, match="offset 1"):
        pipeline.run(once=True, spark=spark)
    assert not list(tmp_path.glob("lake/*/*.parquet"))
