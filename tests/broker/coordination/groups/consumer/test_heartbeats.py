"""Consumer groups of a real broker, over bare connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from moldau.broker.coordination.groups.consumer.embedded import read_assignment, write_assignment
from moldau.broker.server import Broker as Server
from moldau.cluster.state.changes import BrokerJoined
from moldau.cluster.state.topics import BrokerInfo, PartitionState
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.primitives import INT16, INT32, count, string
from tests.broker.asking import Asker, fresh_name, versions
from tests.broker.coordination.groups.asking import Groups
from tests.broker.coordination.groups.consumer.members import Members
from tests.broker.coordination.groups.coordinators import offsets_partition
from tests.broker.wire_client import Client, inside

HEARTBEAT, DESCRIBE = Api.CONSUMER_GROUP_HEARTBEAT, Api.CONSUMER_GROUP_DESCRIBE


def assigned(answer: Any) -> dict[UUID, list[int]] | None:
    if answer.assignment is None:
        return None
    return {each.topic_id: list(each.partitions) for each in answer.assignment.topic_partitions}


@pytest.fixture
def members(asker: Asker) -> Members:
    return Members(asker, fresh_name("group"))


@pytest.fixture
def topic(asker: Asker) -> Any:
    return asker.create(fresh_name(), 4)


@pytest.mark.parametrize("version", versions(HEARTBEAT))
def test_members_join_share_and_leave_in_every_version(
    members: Members, topic: Any, version: int
) -> None:
    first = members.join("a", topic.name, version=version)
    assert (first.error_code, first.member_id, first.member_epoch) == (0, "a", 2)
    assert assigned(first) == {topic.topic_id: [0, 1, 2, 3]}
    assert members.describe().group_state == "Stable"
    assert members.beat("a", -1, version).member_epoch == -1
    described = members.describe()
    assert (described.group_state, described.group_epoch) == ("Empty", 3)


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_a_group_is_described_with_its_epochs_in_every_version(
    members: Members, topic: Any, version: int
) -> None:
    members.join("a", topic.name, rack_id="r", instance_id="i", server_assignor="range")
    found = members.describe(version, include_authorized_operations=True)
    assert (found.error_code, found.group_epoch, found.assignment_epoch) == (0, 2, 2)
    assert (found.assignor_name, found.authorized_operations) != ("uniform", -(2**31))
    [member] = found.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("a", "i", "r")
    assert member.subscribed_topic_names == (topic.name,)
    [place] = member.assignment.topic_partitions
    assert (place.topic_id, place.topic_name) == (topic.topic_id, topic.name)
    assert place.partitions == (0, 1, 2, 3)
    assert member.target_assignment == member.assignment
    if version >= 1:
        assert member.member_type == 1


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"member_id": ""}, Error.INVALID_REQUEST),
        ({"group_id": ""}, Error.INVALID_REQUEST),
        ({"instance_id": ""}, Error.INVALID_REQUEST),
        ({"rack_id": ""}, Error.INVALID_REQUEST),
        ({"member_epoch": -3}, Error.INVALID_REQUEST),
        ({"member_epoch": -2}, Error.INVALID_REQUEST),
        ({"rebalance_timeout": -1}, Error.INVALID_REQUEST),
        ({"topic_partitions": None}, Error.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, Error.INVALID_REQUEST),
        ({"server_assignor": "nonsense"}, Error.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, Error.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "(a{0,1000}){0,1000}"}, Error.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "(?=x)"}, Error.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 5}, Error.GROUP_ID_NOT_FOUND),
    ],
)
def test_what_makes_no_sense_is_refused(
    members: Members, topic: Any, more: dict[str, Any], error: Error
) -> None:
    answer = members.join("a", topic.name, **more)
    assert answer.error_code == error
    assert answer.error_message
    assert members.describe().error_code == Error.GROUP_ID_NOT_FOUND


def test_an_expression_that_explodes_elsewhere_costs_nothing_here(
    members: Members, asker: Asker
) -> None:
    name = "a" * 60
    asker.create(name)
    members.join("a", subscribed_topic_regex="(a|aa|a*)*b|a{60}")
    until(lambda: assigned(members.join("a", subscribed_topic_regex="(a|aa|a*)*b|a{60}")) != {})
    assert members.describe().members[0].subscribed_topic_names == ()


def test_offsets_are_committed_and_read_in_the_members_epoch(members: Members, topic: Any) -> None:
    epoch = members.join("a", topic.name).member_epoch
    groups, key = Groups(members.asker), (topic.name, 0)

    def commit(member: str, generation: int, version: int = 9) -> int:
        found = groups.commit(
            members.group, {key: 5}, version, member=member, generation=generation
        )
        return int(found[key])

    assert commit("a", epoch + 1) == Error.STALE_MEMBER_EPOCH
    assert commit("a", epoch - 1) == Error.STALE_MEMBER_EPOCH
    assert commit("b", epoch) == Error.UNKNOWN_MEMBER_ID
    assert commit("", -1) == Error.UNKNOWN_MEMBER_ID
    assert commit("a", epoch, 8) == Error.UNSUPPORTED_VERSION
    assert commit("a", epoch) == 0
    for member, generation, error in (
        ("a", epoch, 0),
        (None, -1, 0),
        ("a", epoch + 1, Error.STALE_MEMBER_EPOCH),
        ("b", epoch, Error.UNKNOWN_MEMBER_ID),
    ):
        wanted = {
            "group_id": members.group,
            "member_id": member,
            "member_epoch": generation,
            "topics": [{"name": topic.name, "partition_indexes": [0]}],
        }
        [group] = members.asker.ask(
            Api.OFFSET_FETCH, 9, groups=[wanted], require_stable=True
        ).groups
        assert group.error_code == error
        if not error:
            assert group.topics[0].partitions[0].committed_offset == 5


def test_groups_are_listed_deleted_and_cleaned_by_kind(members: Members, topic: Any) -> None:
    members.join("a", topic.name)
    asker, groups = members.asker, Groups(members.asker)
    listed = asker.ask(Api.LIST_GROUPS, states_filter=["stable"], types_filter=["Consumer"]).groups
    assert [each.group_type for each in listed if each.group_id == members.group] == ["consumer"]
    classic = groups.describe(members.group)
    assert (classic.error_code, classic.group_state) == (Error.GROUP_ID_NOT_FOUND, "Dead")
    deleted = asker.ask(Api.DELETE_GROUPS, groups_names=[members.group])
    assert deleted.results[0].error_code == Error.NON_EMPTY_GROUP
    offsets = asker.ask(
        Api.OFFSET_DELETE,
        group_id=members.group,
        topics=[{"name": topic.name, "partitions": [{"partition_index": 0}]}],
    )
    assert offsets.topics[0].partitions[0].error_code == Error.GROUP_SUBSCRIBED_TO_TOPIC
    members.beat("a", -1)
    deleted = asker.ask(Api.DELETE_GROUPS, groups_names=[members.group])
    assert deleted.results[0].error_code == 0
    assert members.describe().error_code == Error.GROUP_ID_NOT_FOUND


def subscription(topics: list[str], owned: dict[str, frozenset[int]] | None = None) -> bytes:
    out = INT16.pack(1) + count(len(topics), False)
    out += b"".join(string(topic, False) for topic in topics) + INT32.pack(-1)
    return out + write_assignment(owned or {}, 0)[2:-4]


def test_a_classic_group_in_use_becomes_a_consumer_group_and_one_again(
    members: Members, topic: Any
) -> None:
    asker, name = members.asker, topic.name
    groups = Groups(asker)
    protocols = (("range", subscription([name])),)
    joined = groups.enter(members.group, protocols=protocols)
    everything = write_assignment({name: frozenset(range(4))}, 1)
    groups.sync(members.group, joined.member_id, 1, {joined.member_id: everything})
    id = joined.member_id

    new = members.join("new", name)
    assert (new.error_code, new.member_epoch, assigned(new)) == (0, 2, {})
    found = members.describe()
    assert {each.member_id: each.member_type for each in found.members} == {id: 0, "new": 1}
    # The classic member is told to rejoin, keeps half of what it had, and gives up the rest.
    assert groups.heartbeat(members.group, id, 1) == Error.REBALANCE_IN_PROGRESS
    has = {name: frozenset(range(4))}
    protocols = (("range", subscription([name], has)),)
    again = groups.join(members.group, id, protocols=protocols)
    assert (again.error_code, again.generation_id) == (0, 1)
    synced = groups.sync(members.group, id, 1, {})
    kept = read_assignment(synced.assignment)
    assert len(kept[name]) == 2
    protocols = (("range", subscription([name], dict(kept))),)
    again = groups.join(members.group, id, protocols=protocols)
    assert (again.error_code, again.generation_id) == (0, 2)
    assert read_assignment(groups.sync(members.group, id, 2, {}).assignment) == kept
    assert assigned(members.beat("new", 2)) == {topic.topic_id: sorted(set(range(4)) - kept[name])}
    assert groups.commit(members.group, {(name, 0): 7}, 8, member=id, generation=2) == {
        (name, 0): 0
    }

    # The last one of the new protocol leaves.
    assert members.beat("new", -1).error_code == 0
    assert groups.describe(members.group).group_state == "PreparingRebalance"
    assert groups.heartbeat(members.group, id, 2) in (
        Error.REBALANCE_IN_PROGRESS,
        Error.ILLEGAL_GENERATION,
    )
    joined = groups.join(members.group, id, protocols=protocols)
    assert (joined.error_code, joined.leader) == (0, id)
    assert groups.committed(members.group, name, 0) == [7]


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    with Broker(group_consumer_assignment_interval_ms=0) as broker:
        yield broker


def test_a_group_goes_on_after_a_restart(own_broker: Broker) -> None:
    with Asker(own_broker) as asker:
        topic = asker.create("t", 4)
        members = Members(asker, "g")
        members.join("a", "t")
        members.join("b", "t")
        before = members.describe()
    own_broker.stop()
    own_broker.start()
    with Asker(own_broker) as asker:
        members = Members(asker, "g")
        until(lambda: members.describe().error_code == 0)
        assert sorted(members.describe().members, key=lambda each: each.member_id) == sorted(
            before.members, key=lambda each: each.member_id
        )
        told = members.beat("a", 2)
        kept = assigned(told)
        assert (told.error_code, told.member_epoch) == (0, 2)
        assert kept is not None
        assert len(kept[topic.topic_id]) == 2
        has = [{"topic_id": topic.topic_id, "partitions": kept[topic.topic_id]}]
        assert members.beat("a", 2, topic_partitions=has).member_epoch == 3
        got = assigned(members.beat("b", 3))
        assert got == {topic.topic_id: sorted(set(range(4)) - set(kept[topic.topic_id]))}


def test_a_conversion_that_is_refused_leaves_nobody_waiting(own_broker: Broker) -> None:
    def set_in_sync(server: Server, isr: tuple[int, ...]) -> None:
        partition = offsets_partition(server)
        partition.become(PartitionState((0, 1), isr, 0, partition.leader_epoch))
        partition.wake()

    with Asker(own_broker) as asker, Client(own_broker) as second:
        asker.create("t", 4)
        members, groups = Members(asker, "g"), Groups(asker)
        protocols = (("range", subscription(["t"])),)
        first = groups.enter("g", protocols=protocols)
        mine = {first.member_id: write_assignment({"t": frozenset(range(4))}, 1)}
        groups.sync("g", first.member_id, 1, mine)
        second.send(
            Api.JOIN_GROUP,
            3,
            group_id="g",
            session_timeout=60_000,
            rebalance_timeout=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[{"name": name, "metadata": data} for name, data in protocols],
        )
        until(lambda: groups.describe("g").group_state == "PreparingRebalance")
        inside(own_broker, lambda server: set_in_sync(server, ()))
        refused = members.join("new", subscribed_topic_regex="t.*")
        assert refused.error_code == Error.COORDINATOR_NOT_AVAILABLE
        told = second.receive()
        assert told.error_code == Error.REBALANCE_IN_PROGRESS
        # The classic group is there again, and becomes another as soon as that can be written.
        assert groups.heartbeat("g", first.member_id, 1) == Error.REBALANCE_IN_PROGRESS
        inside(own_broker, lambda server: set_in_sync(server, (0,)))
        assert members.join("new", subscribed_topic_regex="t.*").error_code == Error.NONE
        assert len(members.describe().members) == 3


def test_there_are_no_consumer_groups_while_a_broker_does_not_know_them(
    own_broker: Broker,
) -> None:
    with Asker(own_broker) as asker:
        asker.create("t", 1)
        members = Members(asker, "g")
        assert members.join("a", "t").error_code == 0
        older = BrokerJoined(BrokerInfo(9, "elsewhere", 9092))
        inside(own_broker, lambda server: server.state.apply(older))
        assert members.beat("a", 2).error_code == Error.UNSUPPORTED_VERSION
        assert members.describe().error_code == Error.UNSUPPORTED_VERSION
