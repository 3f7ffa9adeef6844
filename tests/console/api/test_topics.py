"""Topics through the console's API."""

from __future__ import annotations

import pytest

from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.console.consoles import RunningConsole


def test_a_topic_is_created_described_changed_and_deleted(console: RunningConsole) -> None:
    body = {"name": "made", "partitions": 2, "configs": {"retention.ms": "60000"}}
    created = console.post("api/topics", body, 201)
    assert created == {"name": "made", "partitions": 2, "replication": 1}
    found = console.get("api/topics/made")
    assert [each["partition"] for each in found["partitions"]] == [0, 1]
    assert found["partitions"][0] | {"bytes": 0} == {
        "partition": 0, "leader": 0, "epoch": found["partitions"][0]["epoch"], "replicas": [0],
        "in_sync": [0], "eligible": [], "start": 0, "end": 0, "bytes": 0,
    }  # fmt: skip
    configs = {each["name"]: each for each in found["configs"]}
    assert configs["retention.ms"]["value"] == "60000"
    assert configs["retention.ms"]["source"] == "topic"
    assert configs["cleanup.policy"]["is_default"]
    assert configs["cleanup.policy"]["documentation"]

    change = {"set": {"max.message.bytes": "1000"}, "delete": ["retention.ms"]}
    changed = console.send("PATCH", "api/topics/made/configs", change)
    configs = {each["name"]: each for each in changed}
    assert configs["max.message.bytes"]["value"] == "1000"
    assert configs["retention.ms"]["is_default"]

    console.post("api/topics/made/partitions", {"count": 3})
    assert len(console.get("api/topics/made")["partitions"]) == 3
    console.send("DELETE", "api/topics/made")
    console.get("api/topics/made", 404)


def test_the_list_has_counts_and_hides_what_is_the_brokers_own(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("listed.one", 2)
    shared_broker.create_topic("listed.two", 1)
    console.post("api/topics/listed.one/messages", {"value": "a"}, 201)
    rows = {each["name"]: each for each in console.get("api/topics", q="LISTED.")["topics"]}
    assert list(rows) == ["listed.one", "listed.two"]
    assert rows["listed.one"]["messages"] == 1
    assert rows["listed.one"]["partitions"] == 2
    assert until(
        lambda: [
            each
            for each in console.get("api/topics", q="listed.one")["topics"]
            if each["bytes"] and each["rate_msgs"] is not None
        ],
        "a sample that has the topic",
    )


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "no/slash"}, 422, "invalid_topic_exception"),
        ({"name": ""}, 422, "invalid"),
        ({"name": "x", "partitions": 0}, 422, "invalid_partitions"),
        ({"name": "x", "replication_factor": 3}, 422, "invalid_replication_factor"),
        ({"name": "x", "configs": {"no.such": "1"}}, 422, "invalid_config"),
        ({"partitions": 1}, 422, "invalid"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_the_reason(
    console: RunningConsole, body: dict[str, object], status: int, code: str
) -> None:
    assert console.post("api/topics", body, status)["error"]["code"] == code


def test_a_preview_of_a_topic_creates_none(console: RunningConsole) -> None:
    console.post("api/topics", {"name": "only-asked", "preview": True}, 201)
    console.get("api/topics/only-asked", 404)


def test_an_existing_topic_is_a_conflict(console: RunningConsole) -> None:
    console.post("api/topics", {"name": "twice"}, 201)
    assert console.post("api/topics", {"name": "twice"}, 409)["error"]["message"]
