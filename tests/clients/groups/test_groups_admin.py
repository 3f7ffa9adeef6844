"""Operators look at groups, and change and delete them, with real admin clients."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.clients.groups.members import PATIENCE_S, ConfluentMember, Flow, Ledger, topic_of


def admin_of(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})


def only(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(PATIENCE_S)


def offsets_of(admin: AdminClient, group: str) -> dict[int, int]:
    wanted = [ConsumerGroupTopicPartitions(group)]
    found = only(admin.list_consumer_group_offsets(wanted))
    return {each.partition: each.offset for each in found.topic_partitions}


def test_a_group_is_listed_described_reset_and_deleted() -> None:
    ledger = Ledger()
    with topic_of(2) as broker:
        Flow(broker, 2).write(20)
        admin = admin_of(broker)
        member = ConfluentMember(broker, ledger, "reader").start()
        until(lambda: len(ledger.handled) == 20, "all is handled")

        described = only(admin.describe_consumer_groups(["g"]))
        assert described.state == ConsumerGroupState.STABLE
        assert described.partition_assignor == "range"
        (found,) = described.members
        assert (found.client_id, found.host) == ("reader", "/127.0.0.1")
        assigned = {each.partition for each in found.assignment.topic_partitions}
        assert assigned == {0, 1}
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            only(admin.delete_consumer_groups(["g"]))
        assert refused.value.args[0].name() == "NON_EMPTY_GROUP"

        member.stop()
        listed = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(PATIENCE_S)
        assert [each.group_id for each in listed.valid] == ["g"]
        assert offsets_of(admin, "g") == {0: 10, 1: 10}
        reset = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 3)])
        only(admin.alter_consumer_group_offsets([reset]))
        assert offsets_of(admin, "g") == {0: 3, 1: 10}
        only(admin.delete_consumer_groups(["g"]))
        assert admin.list_consumer_groups().result(PATIENCE_S).valid == []


def test_kafka_python_lists_and_describes_groups() -> None:
    ledger = Ledger()
    with topic_of(2) as broker:
        Flow(broker, 2).write(20)
        with ConfluentMember(broker, ledger, "reader"):
            until(lambda: len(ledger.handled) == 20, "all is handled")
        admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        try:
            groups = admin.list_groups()
            assert "g" in str(groups)
            assert "Empty" in str(admin.describe_groups(["g"]))
        finally:
            admin.close()
