"""The times of messages, where offsets may be those of markers."""

from __future__ import annotations

import pytest

from moldau.client.consumer import message_times
from moldau.client.consumer.message_times import MessageTimes
from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.wire_client import Client, append_open, make_batch


def test_a_marker_is_no_message_and_is_not_waited_for(
    moldau_session_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_times, "WITHIN_S", 3600.0)
    broker = moldau_session_broker
    with Client(broker) as client:
        topic = client.create()
        client.produce(topic, make_batch(b"x", timestamp=1_700_000_000_000))
        append_open(broker, topic, b"y")
        marker = {
            "producer_id": 9,
            "producer_epoch": 0,
            "transaction_result": True,
            "topics": [{"name": topic, "partition_indexes": [0]}],
            "coordinator_epoch": 0,
            "transaction_version": 0,
        }
        client.ask(Api.WRITE_TXN_MARKERS, markers=[marker])
    times = MessageTimes({"bootstrap.servers": f"{broker.host}:{broker.port}"})
    try:
        assert times.at({(topic, 0): 0}) == {(topic, 0): 1_700_000_000_000}
        assert times.at({(topic, 0): 2}) == {}
    finally:
        times.close()
