"""`moldau consume --share`, and `moldau groups` for share groups."""

from __future__ import annotations

from typing import Any

import pytest

from moldau import Producer, Queue
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.broker.wire_client import Client, fresh_name
from tests.cli.conftest import Run


def fill(broker: Broker, topic: str, *values: bytes) -> None:
    broker.create_topic(topic)
    with Producer(broker.bootstrap) as producer:
        for value in values:
            producer.send(topic, value)


def test_a_member_acknowledges_what_it_prints(moldau_session_broker: Broker, moldau: Run) -> None:
    topic, group = fresh_name("jobs"), fresh_name("share")
    fill(moldau_session_broker, topic, b"a", b"b", b"c")
    words = ("consume", topic, "--share", group, "--from-beginning", "--timeout", "60")
    first = moldau(*words, "--max", "2")
    assert (first.status, first.out) == (0, "a\nb\n"), first.err
    assert moldau(*words, "--max", "1").out == "c\n"


def test_groups_shows_what_is_left_in_flight_and_how_old_it_is(
    moldau_session_broker: Broker, moldau: Run
) -> None:
    broker, topic, group = moldau_session_broker, fresh_name("jobs"), fresh_name("share")
    fill(broker, topic, b"a", b"b", b"c")
    with Queue(topic, group=group, bootstrap=broker.bootstrap, start="earliest") as queue:
        messages = [message for message in (queue.take(60) for _ in range(3)) if message]
        assert len(messages) == 3
        queue.flush()

        def told() -> Any:
            return moldau("groups", "describe", group, "--json").json

        # The last one is still in hand.
        until(lambda: told()["partitions"][0]["start"] == 2, "the first two are done")
        described = told()
        assert described["kind"] == "share"
        assert len(described["members"]) == 1
        (partition,) = described["partitions"]
        assert (partition["lag"], partition["in_flight"], partition["dead"]) == (1, 1, 0)
        assert partition["oldest_s"] is not None
        assert "1 left, 1 in flight" in moldau("groups", "describe", group).out
        listed = moldau("groups", "list", "--json").json
        assert {"group": group, "kind": "share", "state": "stable", "members": 1} in listed


def configure(broker: Broker, group: str, **configs: str) -> None:
    texts = [
        {"name": key.replace("_", "."), "config_operation": 0, "value": value}
        for key, value in configs.items()
    ]
    resource = {"resource_type": 32, "resource_name": group, "configs": texts}
    with Client(broker) as client:
        answer = client.ask(
            Api.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False
        )
    assert not answer.responses[0].error_code, answer


@pytest.mark.slow
def test_dead_letters_go_back_to_their_topic_once(
    moldau_session_broker: Broker, moldau: Run
) -> None:
    broker, topic, group = moldau_session_broker, fresh_name("jobs"), fresh_name("share")
    fill(broker, topic, b"good", b"bad 1", b"bad 2")
    assert moldau("groups", "redrive", group).status == 1
    configure(broker, group, errors_deadletterqueue_topic_name=f"dlq.{topic}")
    with Queue(topic, group=group, bootstrap=broker.bootstrap, start="earliest") as queue:
        for message in (queue.take(30) for _ in range(3)):
            assert message is not None
            if message.value == b"good":
                message.done()
            else:
                message.reject()
        queue.flush()

        def planned() -> Any:
            told = moldau("groups", "redrive", group, "--dry-run", "--json")
            return told.json if told.status == 0 else {"letters": []}

        until(lambda: sum(each["letters"] for each in planned()["letters"]) == 2, "both are dead")
        (row,) = planned()["letters"]
        assert (row["topic"], row["reason"]) == (topic, "Offset rejected by client.")
        # Looking moves nothing, and nobody said yes.
        assert moldau("groups", "redrive", group, typed="n\n").status != 0
        redriven = moldau("groups", "redrive", group, "--yes", "--json").json
        assert (redriven["moved"], redriven["from"]) == (2, f"dlq.{topic}")
        again = [message for message in (queue.take(30) for _ in range(2)) if message]
        assert sorted(message.value for message in again) == [b"bad 1", b"bad 2"]
        assert not any("__dlq" in name for message in again for name, _ in message.headers)
        for message in again:
            message.done()
        queue.flush()
    assert moldau("groups", "redrive", group, "--yes", "--json").json["moved"] == 0


@pytest.mark.parametrize("more", [("--group", "g"), ("--offset", "3"), ("--committed",)])
def test_options_that_mean_nothing_to_a_share_group_are_refused(
    moldau: Run, more: tuple[str, ...]
) -> None:
    assert moldau("consume", "t", "--share", "g", *more).status == 2
