"""The topic of the audit: nothing that came while it could not be written to keeps it shut."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.broker.wire_client import Client, inside

TOPIC = "refusals"


def entries(count: int, size: int = 400) -> list[dict[str, Any]]:
    return [{"number": number, "names": ["x" * size]} for number in range(count)]


def publish(broker: Broker, given: list[dict[str, Any]]) -> None:
    def work(server: Any) -> None:
        server._audit_topic.publish(given)

    inside(broker, work)


def numbers(client: Client) -> list[int]:
    """The numbers of all entries that are in the topic."""
    topics = client.ask(Api.METADATA, topics=None).topics
    if TOPIC not in [each.name for each in topics]:
        return []
    return [json.loads(each or b"")["number"] for each in client.values(TOPIC)]


def test_more_entries_than_a_batch_may_have_are_written_in_several(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    with Broker({"audit.topic": TOPIC}) as broker, Client(broker) as client:
        # As many as wait for a topic that was away for a while.
        publish(broker, entries(8000))
        until(lambda: len(numbers(client)) == 8000, "all of them")
        assert numbers(client) == list(range(8000))
        publish(broker, entries(3))
        until(lambda: len(numbers(client)) == 8003, "the next ones")
    assert "entries of the audit are waiting" not in caplog.text


def test_an_entry_that_the_topic_never_takes_does_not_hold_up_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    with Broker({"audit.topic": TOPIC}) as broker, Client(broker) as client:
        client.create(TOPIC, max_message_bytes="1000")
        publish(broker, [*entries(5), {"number": 5, "names": ["x" * 2000]}, *entries(3)])
        until(lambda: len(numbers(client)) == 8, "all that have room")
        assert numbers(client) == [0, 1, 2, 3, 4, 0, 1, 2]
    assert "dropped 1 entry for the audit topic" in caplog.text
