"""`moldau topics` against a real broker."""

from __future__ import annotations

import pytest

from tests.cli.conftest import QUICKLY, Run


def test_a_created_topic_is_listed_and_described(moldau: Run, fresh_name: str) -> None:
    created = moldau(
        "topics", "create", fresh_name, "--partitions", "3", "--config", "retention.ms=5000"
    )
    assert created.status == 0, created.err
    assert created.out == f"{fresh_name}: created with 3 partitions\n"

    listed = moldau("topics", "list", "--json")
    assert {"topic": fresh_name, "partitions": 3, "replication_factor": 1} in listed.json

    described = moldau("topics", "describe", fresh_name, "--json").json
    assert described["configs"] == {"retention.ms": "5000"}
    assert [p["partition"] for p in described["partitions"]] == [0, 1, 2]
    assert described["partitions"][0] == {
        "partition": 0,
        "leader": 0,
        "replicas": [0],
        "isr": [0],
        "start": 0,
        "end": 0,
    }


def test_a_described_topic_counts_its_messages(moldau: Run, topic: str) -> None:
    moldau("produce", topic, "--partition", "1", *QUICKLY, typed="a\nb\n")
    described = moldau("topics", "describe", topic)
    assert described.out.splitlines() == [
        f"{topic}: 3 partitions",
        "PARTITION  LEADER  REPLICAS  IN SYNC  START  END  MESSAGES",
        "        0       0         0        0      0    0         0",
        "        1       0         0        0      0    2         2",
        "        2       0         0        0      0    0         0",
    ]


def test_describe_all_shows_the_defaults_too(moldau: Run, topic: str) -> None:
    configs = moldau("topics", "describe", topic, "--all", "--json").json["configs"]
    assert configs["cleanup.policy"] == "delete"
    assert configs["segment.bytes"] == str(1 << 30)


def test_alter_adds_partitions_and_changes_settings(moldau: Run, topic: str) -> None:
    altered = moldau("topics", "alter", topic, "--partitions", "5", "--config", "segment.ms=60000")
    assert altered.status == 0, altered.err
    described = moldau("topics", "describe", topic, "--json").json
    assert len(described["partitions"]) == 5
    assert described["configs"] == {"segment.ms": "60000"}

    assert moldau("topics", "alter", topic, "--delete-config", "segment.ms").status == 0
    assert moldau("topics", "describe", topic, "--json").json["configs"] == {}


def test_a_deleted_topic_is_gone(moldau: Run, topic: str) -> None:
    assert moldau("topics", "delete", topic).out == f"{topic}: deleted\n"
    assert topic not in {each["topic"] for each in moldau("topics", "list", "--json").json}
    assert moldau("topics", "delete", topic).status == 1
    assert moldau("topics", "delete", topic, "--if-exists").status == 0


def test_creating_a_topic_twice_fails_unless_that_is_fine(moldau: Run, topic: str) -> None:
    again = moldau("topics", "create", topic)
    assert again.status == 1
    assert f"topic {topic} already exists" in again.err
    assert moldau("topics", "create", topic, "--if-not-exists", "--json").json == {
        "topic": topic,
        "partitions": 3,
        "created": False,
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "bad/name"), "bad/name"),
        (("create", "fine", "--config", "retention.mss=1"), "retention.mss"),
        (("create", "fine", "--config", "retention.ms=soon"), "soon"),
        (("create", "fine", "--replication-factor", "3"), "replication"),
        (("describe", "nowhere"), "topic nowhere does not exist"),
        (("alter", "nowhere", "--partitions", "2"), "topic nowhere does not exist"),
        (("delete", "nowhere"), "topic nowhere does not exist"),
    ],
)
def test_what_the_broker_refuses_is_said_and_fails(
    moldau: Run, words: tuple[str, ...], said: str
) -> None:
    ended = moldau("topics", *words)
    assert ended.status == 1
    assert ended.err.startswith("error: ")
    assert said.lower() in ended.err.lower()
    assert ended.out == ""


@pytest.mark.parametrize(
    "words",
    [
        ("create",),
        ("create", "fine", "--partitions", "0"),
        ("create", "fine", "--config", "no-equals-sign"),
        ("alter", "fine"),
        ("explode",),
        ("list", "--bootstrap", "no-port"),
    ],
)
def test_wrong_usage_ends_with_status_2(moldau: Run, words: tuple[str, ...]) -> None:
    assert moldau("topics", *words).status == 2


def test_fewer_partitions_are_refused_with_the_brokers_words(moldau: Run, topic: str) -> None:
    ended = moldau("topics", "alter", topic, "--partitions", "2")
    assert ended.status == 1
    assert "INVALID_PARTITIONS" in ended.err
