"""`moldau pipeline redrive`: which letters it finds, and what it asks before it moves them."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from confluent_kafka import Producer

from moldau.client.pipelines.status import PipelineStatus, SourceStatus
from moldau.client.pipelines.status_topic import StatusTopic
from moldau.peer.cluster import Cluster
from moldau.peer.view import parse_bootstrap
from moldau.testing import Broker
from tests.cli.conftest import Run

FILE = """
[sources.events]
topic = "{topic}"
schema = "name STRING"
[sinks.raw]
from = "events"
type = "delta"
path = "lake"
"""


@pytest.fixture
def file(tmp_path: Path, topic: str) -> str:
    path = tmp_path / "events.toml"
    path.write_text(FILE.format(topic=topic), "utf-8")
    return str(path)


@pytest.fixture
def letters(moldau_session_broker: Broker, topic: str) -> str:
    """Three letters of the file's source, and one of another pipeline's."""
    name = f"{topic}-dead-letters"
    moldau_session_broker.create_topic(name)
    producer = Producer({"bootstrap.servers": moldau_session_broker.bootstrap})
    now_ms = int(time.time() * 1000)
    for offset, (source, reason, age_h) in enumerate(
        [
            ("events", "name is not text", 3),
            ("events", "not JSON: half", 0),
            ("events", "Name is missing", 0),
            ("others", "not JSON: half", 0),
        ]
    ):
        told = {
            "topic": topic,
            "topic_id": "1",
            "partition": "1",
            "offset": str(offset),
        }
        headers: list[tuple[str, str | bytes | None]] = [
            (f"moldau.origin.{key}", text) for key, text in told.items()
        ]
        headers += [("moldau.reason", reason), ("moldau.source", source)]
        at_ms = now_ms - age_h * 3_600_000
        value = f'{{"n": {offset}}}'
        producer.produce(name, value, key=f"k{offset}", headers=headers, timestamp=at_ms)
    assert producer.flush(60) == 0
    return name


def test_what_would_move_is_shown_and_then_asked_about(
    moldau: Run, file: str, topic: str, letters: str
) -> None:
    shown = moldau("pipeline", "redrive", file, "--dry-run")
    assert shown.status == 0, shown.err
    assert [line.split()[:2] for line in shown.out.splitlines()[1:]] == [[topic, "1"]] * 3
    unsure = moldau("pipeline", "redrive", file, typed="no\n")
    assert unsure.status == 1
    assert f"Move 3 dead letters in {letters} back?" in unsure.err
    assert "nothing was changed" in unsure.err
    done = moldau("pipeline", "redrive", file, "--yes")
    assert done.status == 0, done.err
    assert f"{letters}: 3 moved" in done.out
    again = moldau("pipeline", "redrive", file, "--json", "--yes").json
    assert (again["moved"], again["moved_before"]) == (0, 3)
    read = moldau("consume", topic, "--from-beginning", "--max", "3", "--json").json_lines
    assert {(each["partition"], each["key"]) for each in read} == {
        (1, "k0"),
        (1, "k1"),
        (1, "k2"),
    }


def test_what_brokers_have_set_aside_in_the_same_topic_moves_with_the_letters(
    moldau: Run, moldau_session_broker: Broker, file: str, topic: str
) -> None:
    name = f"{topic}-dead-letters"
    moldau_session_broker.create_topic(name)
    producer = Producer({"bootstrap.servers": moldau_session_broker.bootstrap})
    told: list[tuple[str, str | bytes | None]] = [
        ("moldau.origin.topic", topic),
        ("moldau.origin.partition", "1"),
        ("moldau.reason", "no value of its schema"),
    ]
    producer.produce(name, "{}", key="k", headers=told)
    assert producer.flush(60) == 0
    for expected in (1, 0):
        done = moldau("pipeline", "redrive", file, "--json", "--yes").json
        assert (done["moved"], done["moved_before"]) == (expected, 1 - expected)


def test_letters_are_chosen_by_reason_and_age_and_a_running_pipeline_by_its_name(
    moldau: Run, moldau_session_broker: Broker, topic: str, letters: str
) -> None:
    name = f"p-{topic}"
    source = SourceStatus(name="events", topics=[topic], dead_letters=letters)
    with Cluster(parse_bootstrap(moldau_session_broker.bootstrap)) as cluster:
        statuses = StatusTopic(cluster)
        statuses.require()
        statuses.write(PipelineStatus(name=name, run="1", state="running", sources=[source]))

    def chosen(*words: str) -> list[str]:
        found = moldau("pipeline", "redrive", name, "--dry-run", "--json", *words).json
        return sorted(each["reason"] for each in found["letters"])

    assert chosen("--reason", "NAME") == ["Name is missing", "name is not text"]
    assert chosen("--since", "2h") == ["Name is missing", "not JSON: half"]
    assert chosen("--since", "2h", "--reason", "name") == ["Name is missing"]
    unknown = moldau("pipeline", "redrive", "rhone")
    assert unknown.status == 1
    assert "these brokers have no status of a pipeline 'rhone'" in unknown.err
    assert moldau("pipeline", "redrive", "rhone.toml").status == 2


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(find_spec("pyspark") is None, reason="needs pyspark")
def test_letters_are_edited_by_sql(moldau: Run, file: str, topic: str, letters: str) -> None:
    from moldau.spark import session

    # The commands find it, which saves them a start each.
    spark = session(master="local[1]")
    try:
        edit_letters(moldau, file, topic)
    finally:
        spark.stop()


def edit_letters(moldau: Run, file: str, topic: str) -> None:
    wrong = moldau("pipeline", "redrive", file, "--edit", "valeu", "--yes")
    assert wrong.status == 1
    assert "the edit is not an SQL expression" in wrong.err
    number = moldau("pipeline", "redrive", file, "--edit", "offset", "--yes")
    assert "the edit gives long, not a string" in number.err
    edit = "if(reason LIKE 'not JSON%', NULL, replace(value, 'n', concat(key, '/', source)))"
    done = moldau("pipeline", "redrive", file, "--edit", edit, "--yes")
    assert done.status == 0, done.err
    assert '-1 0: {"n": 0} -> {"k0/events": 0}' in done.err
    assert "1 stay, because the edit gives NULL" in done.err
    read = moldau("consume", topic, "--from-beginning", "--max", "2", "--json").json_lines
    assert sorted(each["value"] for each in read) == ['{"k0/events": 0}', '{"k2/events": 2}']
