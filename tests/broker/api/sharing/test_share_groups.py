"""ShareGroupHeartbeat, ShareGroupDescribe and the offsets of share groups, over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from moldau.broker.coordination.share.coordinator import Refused
from moldau.broker.coordination.share.state import ShareKey
from moldau.broker.sharing.persister import Persister
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.api.sharing.member import ACCEPT, Member, partition_of
from tests.broker.wire_client import Client, fresh_name, inside, make_batch


class Group(NamedTuple):
    """A share group and its topic."""

    client: Client
    id: str
    topic: str
    topic_id: UUID

    def beat(self, member: str = "m", epoch: int = 0, **more: Any) -> Any:
        values = {"group_id": self.id, "member_id": member, "member_epoch": epoch}
        if epoch == 0:
            values["subscribed_topic_names"] = [self.topic]
        return self.client.ask(Api.SHARE_GROUP_HEARTBEAT, **{**values, **more})

    def describe(self) -> Any:
        return self.client.ask(Api.SHARE_GROUP_DESCRIBE, group_ids=[self.id]).groups[0]

    def offsets(self, topics: Any = None) -> Any:
        groups = [{"group_id": self.id, "topics": topics}]
        return self.client.ask(Api.DESCRIBE_SHARE_GROUP_OFFSETS, groups=groups).groups[0]

    def alter(self, start: int, partition: int = 0) -> Any:
        each = {"partition_index": partition, "start_offset": start}
        return self.client.ask(
            Api.ALTER_SHARE_GROUP_OFFSETS,
            group_id=self.id,
            topics=[{"topic_name": self.topic, "partitions": [each]}],
        )

    def delete_offsets(self, topic: str | None = None) -> Any:
        return self.client.ask(
            Api.DELETE_SHARE_GROUP_OFFSETS,
            group_id=self.id,
            topics=[{"topic_name": topic or self.topic}],
        )

    def configure(self, **configs: str) -> None:
        texts = [
            {"name": key.replace("_", "."), "config_operation": 0, "value": value}
            for key, value in configs.items()
        ]
        resource = {"resource_type": 32, "resource_name": self.id, "configs": texts}
        answer = self.client.ask(
            Api.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False
        )
        assert not answer.responses[0].error_code, answer


@pytest.fixture
def group(client: Client) -> Group:
    topic = client.create()
    group = Group(client, fresh_name("share"), topic, client.topic_id(topic))
    found = client.ask(Api.FIND_COORDINATOR, key_type=0, coordinator_keys=[group.id])
    assert not found.coordinators[0].error_code
    return group


def test_a_member_is_told_what_to_fetch(group: Group) -> None:
    heard = group.beat()
    assert not heard.error_code
    assert (heard.member_id, heard.member_epoch) == ("m", 1)
    assert heard.heartbeat_interval.total_seconds() == 5
    (assigned,) = heard.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (group.topic_id, (0,))
    assert group.beat(epoch=1).assignment is None
    described = group.describe()
    assert (described.group_state, described.group_epoch) == ("Stable", 1)
    assert (described.assignment_epoch, described.assignor_name) == (1, "simple")
    (member,) = described.members
    assert (member.member_id, member.client_id) == ("m", "wire-client")
    assert member.subscribed_topic_names == (group.topic,)
    assert member.assignment.topic_partitions[0].topic_name == group.topic
    assert group.beat(epoch=-1).member_epoch == -1
    assert group.describe().group_state == "Empty"


@pytest.mark.parametrize(
    "wrong",
    [
        {"group_id": ""},
        {"member_id": ""},
        {"member_epoch": -2},
        {"rack_id": ""},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
    ],
    ids=str,
)
def test_heartbeats_that_make_no_sense_are_refused(group: Group, wrong: dict[str, Any]) -> None:
    refused = group.beat(**wrong)
    assert refused.error_code == Error.INVALID_REQUEST
    # Kafka has no words for a member without a name.
    assert (refused.error_message is None) == ("member_id" in wrong)


def test_a_group_of_another_kind_is_not_found_and_stays_as_it_was(group: Group) -> None:
    joined = group.client.ask(
        Api.JOIN_GROUP,
        3,
        group_id=group.id,
        session_timeout=30_000,
        rebalance_timeout=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    assert not joined.error_code
    assert group.beat().error_code == Error.GROUP_ID_NOT_FOUND
    assert group.describe().error_code == Error.GROUP_ID_NOT_FOUND
    assert group.offsets().error_code == Error.GROUP_ID_NOT_FOUND
    assert group.alter(0).error_code == Error.GROUP_ID_NOT_FOUND
    assert group.delete_offsets().error_code == Error.GROUP_ID_NOT_FOUND
    known = group.client.ask(Api.DESCRIBE_GROUPS, groups=[group.id])
    assert len(known.groups[0].members) == 1


def test_classic_members_and_offsets_have_no_place_in_a_share_group(group: Group) -> None:
    group.beat()
    joined = group.client.ask(
        Api.JOIN_GROUP,
        3,
        group_id=group.id,
        session_timeout=30_000,
        rebalance_timeout=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    assert joined.error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    committed = group.client.ask(
        Api.OFFSET_COMMIT,
        8,
        group_id=group.id,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            {
                "name": group.topic,
                "partitions": [{"partition_index": 0, "committed_offset": 1}],
            }
        ],
    )
    assert committed.topics[0].partitions[0].error_code
    assert group.describe().group_state == "Stable"


def test_it_says_how_far_the_group_has_come(group: Group, moldau_session_broker: Broker) -> None:
    group.configure(share_auto_offset_reset="earliest")
    group.beat()
    (topic,) = group.offsets().topics
    assert topic.partitions[0].start_offset == -1
    assert topic.partitions[0].lag == -1
    group.client.produce(group.topic, make_batch(b"a", b"b", b"c", b"d"))
    with Member(moldau_session_broker, group.id, group.topic_id) as member:
        assert member.take() == [(0, 3, 1)]
        said = member.acknowledge({0: [(0, 0, ACCEPT), (2, 2, ACCEPT)]})
        assert not partition_of(said).error_code
        (topic,) = group.offsets([{"topic_name": group.topic, "partitions": [0, 7]}]).topics
        first, unknown = topic.partitions
        assert (first.start_offset, first.lag) == (1, 2)
        assert unknown.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert group.offsets([]).topics == ()


def test_a_group_begins_where_its_settings_say(group: Group, moldau_session_broker: Broker) -> None:
    group.beat()
    group.client.produce(group.topic, make_batch(b"before"))
    with Member(moldau_session_broker, group.id, group.topic_id) as member:
        member.fetch()
        until(lambda: group.offsets().topics[0].partitions[0].start_offset == 1)
        group.client.produce(group.topic, make_batch(b"after"))
        assert member.take() == [(1, 1, 1)]


def test_a_group_begins_with_what_is_no_older_than_its_settings_say(
    group: Group, moldau_session_broker: Broker
) -> None:
    group.configure(share_auto_offset_reset="by_duration:PT1H")
    group.beat()
    group.client.produce(group.topic, make_batch(b"old", timestamp=1_000_000_000_000))
    group.client.produce(group.topic, make_batch(b"new"))
    with Member(moldau_session_broker, group.id, group.topic_id) as member:
        assert member.take() == [(1, 1, 1)]


def test_offsets_are_set_anew_only_while_nobody_reads(
    group: Group, moldau_session_broker: Broker
) -> None:
    group.configure(share_auto_offset_reset="earliest")
    group.client.produce(group.topic, make_batch(b"a", b"b", b"c"))
    group.beat()
    with Member(moldau_session_broker, group.id, group.topic_id) as member:
        assert member.take() == [(0, 2, 1)]
        assert not partition_of(member.acknowledge({0: [(0, 2, ACCEPT)]})).error_code
        assert group.alter(1).error_code == Error.NON_EMPTY_GROUP
        assert group.delete_offsets().error_code == Error.NON_EMPTY_GROUP
        member.acknowledge({}, epoch=-1)
    group.beat(epoch=-1)
    altered = group.alter(1)
    assert not altered.error_code
    assert not altered.responses[0].partitions[0].error_code
    unknown = group.alter(1, partition=9).responses[0].partitions[0]
    assert unknown.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    group.beat()
    with Member(moldau_session_broker, group.id, group.topic_id) as member:
        assert member.take() == [(1, 2, 1)]
        member.acknowledge({0: [(1, 2, ACCEPT)]}, epoch=-1)
    group.beat(epoch=-1)
    deleted = group.delete_offsets()
    assert not deleted.error_code
    assert not deleted.responses[0].error_code
    gone = group.delete_offsets("no-such-topic").responses[0]
    assert gone.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert group.offsets().topics == ()
    group.beat()
    with Member(moldau_session_broker, group.id, group.topic_id) as member:
        assert member.take() == [(0, 2, 1)]


def test_a_group_is_deleted_with_all_that_is_written_of_it(
    group: Group, moldau_session_broker: Broker
) -> None:
    group.configure(share_auto_offset_reset="earliest")
    group.client.produce(group.topic, make_batch(b"a"))
    group.beat()
    with Member(moldau_session_broker, group.id, group.topic_id) as member:
        assert member.take() == [(0, 0, 1)]
        member.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=-1)
    refused = group.client.ask(Api.DELETE_GROUPS, groups_names=[group.id])
    assert refused.results[0].error_code == Error.NON_EMPTY_GROUP
    group.beat(epoch=-1)
    deleted = group.client.ask(Api.DELETE_GROUPS, groups_names=[group.id])
    assert not deleted.results[0].error_code
    assert group.describe().error_code == Error.GROUP_ID_NOT_FOUND
    group.beat()
    with Member(moldau_session_broker, group.id, group.topic_id) as member:
        assert member.take() == [(0, 0, 1)]


DELETIONS: dict[Api, Callable[[Group], dict[str, Any]]] = {
    Api.DELETE_GROUPS: lambda group: {"groups_names": [group.id]},
    Api.DELETE_SHARE_GROUP_OFFSETS: lambda group: {
        "group_id": group.id,
        "topics": [{"topic_name": group.topic}],
    },
}


@pytest.mark.parametrize("api", DELETIONS)
def test_nobody_joins_a_group_while_its_positions_are_deleted(
    group: Group, moldau_session_broker: Broker, monkeypatch: pytest.MonkeyPatch, api: Api
) -> None:
    """A member would stay in a group that has lost its position, and skip what came meanwhile."""
    held = asyncio.Event()
    is_held: list[bool] = []
    delete = Persister.delete

    async def slow_delete(self: Persister, key: ShareKey) -> Any:
        is_held.append(True)
        await held.wait()
        return await delete(self, key)

    group.beat()
    with Member(moldau_session_broker, group.id, group.topic_id) as member:
        member.fetch()
        until(lambda: group.offsets().topics[0].partitions[0].start_offset == 0)
    group.beat(epoch=-1)
    monkeypatch.setattr(Persister, "delete", slow_delete)
    with Client(moldau_session_broker) as admin:
        admin.send(api, **DELETIONS[api](group))
        until(lambda: bool(is_held), "the deletion is under way")
        assert group.beat().error_code == Error.COORDINATOR_NOT_AVAILABLE
        # Nor does another change the group meanwhile.
        assert group.alter(0).error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert group.delete_offsets().error_code == Error.COORDINATOR_NOT_AVAILABLE
        again = group.client.ask(Api.DELETE_GROUPS, groups_names=[group.id]).results[0]
        assert again.error_code == Error.COORDINATOR_NOT_AVAILABLE
        inside(moldau_session_broker, lambda server: held.set())
        answer = admin.receive()
        told = answer.results[0] if api is Api.DELETE_GROUPS else answer.responses[0]
        assert not told.error_code
    assert group.offsets().topics == ()
    assert not group.beat().error_code
    assert [topic.topic_name for topic in group.offsets().topics] == [group.topic]


def test_a_group_whose_positions_could_not_be_deleted_can_be_joined_again(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: Persister, key: ShareKey) -> Any:
        return Refused(Error.COORDINATOR_NOT_AVAILABLE)

    for epoch in (0, -1):
        assert not group.beat(epoch=epoch).error_code
    with monkeypatch.context() as patch:
        patch.setattr(Persister, "delete", refuse)
        refused = group.client.ask(Api.DELETE_GROUPS, groups_names=[group.id]).results[0]
        assert refused.error_code == Error.COORDINATOR_NOT_AVAILABLE
    assert not group.beat().error_code


@pytest.fixture
def restarted() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_a_group_is_as_it_was_after_a_restart(restarted: Broker) -> None:
    with Client(restarted) as client:
        client.create("jobs")
        id = client.topic_id("jobs")
        client.ask(Api.FIND_COORDINATOR, key_type=0, coordinator_keys=["g"])
        group = Group(client, "g", "jobs", id)
        group.configure(share_auto_offset_reset="earliest")
        group.beat()
        client.produce("jobs", make_batch(b"a", b"b", b"c"))
        with Member(restarted, "g", id) as member:
            assert member.take() == [(0, 2, 1)]
            assert not partition_of(member.acknowledge({0: [(1, 1, ACCEPT)]})).error_code
    restarted.stop()
    restarted.start()
    with Client(restarted) as client:
        group = Group(client, "g", "jobs", id)
        until(lambda: not group.describe().error_code, "the group is read back")
        described = group.describe()
        assert (described.group_state, described.group_epoch) == ("Stable", 1)
        assert group.beat(epoch=1).member_epoch == 1
        with Member(restarted, "g", id) as member:
            offsets = [(first, last) for first, last, _ in member.take()]
            assert offsets == [(0, 0), (2, 2)]
