"""Offsets that are committed with a transaction, by members of groups that know no generations."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.api.transactions.producing import TV2, Producer
from tests.broker.wire_client import Client, fresh_name


def join(client: Client, api: Api, group: str, topic: str) -> int:
    """Have the member "m" in a group; its epoch."""
    client.ask(Api.FIND_COORDINATOR, 0, key=group)
    values: dict[str, Any] = {"group_id": group, "member_id": "m", "member_epoch": 0}
    values["subscribed_topic_names"] = [topic]
    if api is Api.CONSUMER_GROUP_HEARTBEAT:
        values |= {"rebalance_timeout": 30_000, "topic_partitions": []}
    epochs: list[int] = []

    def is_in() -> bool:
        answer = client.ask(api, 1, **values)
        epochs.append(answer.member_epoch)
        return not answer.error_code

    until(is_in, "the member")
    return epochs[-1]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_an_epoch_of_a_member_that_is_not_its_own_is_an_illegal_generation(
    moldau_session_broker: Broker, version: int
) -> None:
    """Clients take STALE_MEMBER_EPOCH, which this answer never had, for a fatal error."""
    producer = Producer(moldau_session_broker, TV2).init()
    client, group = producer.client, fresh_name("epochs")
    topic = client.create()
    epoch = join(client, Api.CONSUMER_GROUP_HEARTBEAT, group, topic)
    if version < 5:
        added = client.ask(Api.ADD_OFFSETS_TO_TXN, 3, **producer.who, group_id=group)
        assert added.error_code == 0

    def code(member: str, epoch: int) -> int:
        more = {"member_id": member, "generation_id": epoch}
        return producer.ask_commit_offset(group, topic, 5, version, **more)

    assert code("m", epoch) == 0
    for other in (epoch - 1, epoch + 1, -1):
        assert code("m", other) == Error.ILLEGAL_GENERATION
    assert code("nobody", epoch) == Error.UNKNOWN_MEMBER_ID
    client.close()


def test_a_share_group_has_no_offsets_in_transactions(moldau_session_broker: Broker) -> None:
    producer = Producer(moldau_session_broker, TV2).init()
    client, group = producer.client, fresh_name("sharing")
    topic = client.create()
    join(client, Api.SHARE_GROUP_HEARTBEAT, group, topic)
    assert producer.ask_commit_offset(group, topic, 5) == Error.GROUP_ID_NOT_FOUND
    code = producer.ask_commit_offset(fresh_name("g"), topic, 5, member_id="m", generation_id=1)
    assert code == Error.ILLEGAL_GENERATION
    client.close()


@pytest.mark.parametrize("commits", [True, False])
def test_an_offset_that_is_deleted_waits_for_no_transaction(
    moldau_broker: Broker, commits: bool
) -> None:
    producer = Producer(moldau_broker, TV2).init()
    producer.client.create("topic")
    producer.client.ask(Api.FIND_COORDINATOR, 0, key="group")
    assert producer.ask_commit_offset("group", "topic", 5) == 0

    def fetched() -> tuple[int, int]:
        topics = [{"name": "topic", "partition_indexes": [0]}]
        answer = producer.client.ask(
            Api.OFFSET_FETCH, 7, group_id="group", topics=topics, require_stable=True
        )
        if answer.error_code:
            return int(answer.error_code), -2
        found = answer.topics[0].partitions[0]
        return int(found.error_code), int(found.committed_offset)

    assert fetched() == (Error.UNSTABLE_OFFSET_COMMIT, -1)
    named = [{"name": "topic", "partitions": [{"partition_index": 0}]}]
    answer = producer.client.ask(Api.OFFSET_DELETE, group_id="group", topics=named)
    assert answer.topics[0].partitions[0].error_code == 0
    assert fetched() == (0, -1)
    producer.client.close()
    moldau_broker.stop()
    moldau_broker.start()
    producer.client = Client(moldau_broker)
    until(lambda: fetched()[1] != -2, "groups to be read back")
    assert fetched() == (0, -1)
    until(lambda: producer.state() == "Ongoing", "transactions to be read back")
    producer.end(commits=commits)
    producer.until("CompleteCommit" if commits else "CompleteAbort")
    assert fetched() == (0, -1)
    producer.client.close()
