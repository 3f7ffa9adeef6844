"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup over the wire, in every version."""

from __future__ import annotations

import pytest

from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.asking import Asker, fresh_name, versions
from tests.broker.coordination.groups.asking import Groups, fresh_group


@pytest.mark.parametrize("version", versions(Api.FIND_COORDINATOR))
def test_every_group_is_coordinated_by_the_only_broker(
    groups: Groups, moldau_session_broker: Broker, version: int
) -> None:
    found = groups.find(fresh_name("group"), version)
    assert (found.error_code, found.node_id) == (0, 0)
    assert (found.host, found.port) == (moldau_session_broker.host, moldau_session_broker.port)
    if version >= 1:
        assert found.error_message == ("NONE" if version < 4 else "")


def test_several_coordinators_are_found_at_once(asker: Asker) -> None:
    names = [fresh_name("group") for _ in range(3)]
    answer = asker.ask(Api.FIND_COORDINATOR, key_type=0, coordinator_keys=names)
    assert [each.key for each in answer.coordinators] == names
    assert {each.node_id for each in answer.coordinators} == {0}


@pytest.mark.parametrize("version", [1, 3, 6])
def test_nobody_coordinates_what_is_unheard_of(groups: Groups, version: int) -> None:
    assert groups.find("what", version, 77).error_code == Error.INVALID_REQUEST


def test_the_topic_of_the_offsets_is_internal_compacted_and_has_fifty_partitions() -> None:
    with Broker() as broker, Asker(broker) as asker:
        wanted = [{"name": "__consumer_offsets"}]
        before = asker.ask(Api.METADATA, 12, topics=wanted, allow_auto_topic_creation=True)
        assert before.topics[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert Groups(asker).find("any").error_code == 0
        answer = asker.ask(Api.METADATA, 12, topics=wanted)
        (topic,) = answer.topics
        assert topic.is_internal
        assert len(topic.partitions) == 50
        resource = {"resource_type": 2, "resource_name": "__consumer_offsets"}
        described = asker.ask(Api.DESCRIBE_CONFIGS, resources=[resource])
        configs = {each.name: each.value for each in described.results[0].configs}
        assert configs["cleanup.policy"] == "compact"
        assert configs["segment.bytes"] == "104857600"
        assert configs["compression.type"] == "producer"


@pytest.mark.parametrize("version", versions(Api.JOIN_GROUP))
def test_a_member_joins_in_every_version(groups: Groups, version: int) -> None:
    group = fresh_group(groups)
    joined = groups.join(group, "", version)
    if version >= 4:
        assert joined.error_code == Error.MEMBER_ID_REQUIRED
        joined = groups.join(group, joined.member_id, version)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert joined.protocol_name == "range"
    assert joined.leader == joined.member_id
    assert [member.member_id for member in joined.members] == [joined.member_id]


@pytest.mark.parametrize("version", versions(Api.SYNC_GROUP))
def test_a_member_gets_its_assignment_in_every_version(groups: Groups, version: int) -> None:
    group = fresh_group(groups)
    member = groups.enter(group).member_id
    synced = groups.sync(group, member, 1, {member: b"mine"}, version)
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    if version >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", versions(Api.HEARTBEAT))
def test_heartbeats_are_answered_in_every_version(groups: Groups, version: int) -> None:
    group = fresh_group(groups)
    member = groups.stable(group).member_id
    assert groups.heartbeat(group, member, 1, version) == 0
    assert groups.heartbeat(group, member, 2, version) == Error.ILLEGAL_GENERATION
    assert groups.heartbeat(group, "nobody", 1, version) == Error.UNKNOWN_MEMBER_ID
    assert groups.heartbeat("no-such-group", member, 1, version) == Error.UNKNOWN_MEMBER_ID
    assert groups.heartbeat("", member, 1, version) == Error.INVALID_GROUP_ID


@pytest.mark.parametrize("version", versions(Api.LEAVE_GROUP))
def test_members_leave_in_every_version(groups: Groups, version: int) -> None:
    group = fresh_group(groups)
    member = groups.stable(group).member_id
    assert groups.leave(group, "nobody", version=version) == [Error.UNKNOWN_MEMBER_ID]
    assert groups.leave(group, member, version=version) == [0]
    assert groups.leave("no-such-group", member, version=version) == [Error.UNKNOWN_MEMBER_ID]
    assert groups.describe(group).group_state == "Empty"


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_comes_back_to_its_assignment(groups: Groups, version: int) -> None:
    group = fresh_group(groups)
    first = groups.stable(group, instance="one")
    back = groups.join(group, "", version, instance="one")
    assert (back.error_code, back.generation_id) == (0, 1)
    assert back.member_id != first.member_id
    synced = groups.sync(group, back.member_id, 1, group_instance_id="one")
    assert synced.assignment == b"mine"
    fenced = groups.heartbeat(group, first.member_id, 1, group_instance_id="one")
    assert fenced == Error.FENCED_INSTANCE_ID


@pytest.mark.parametrize("session_ms", [-1, 0, 5_999, 1_800_001])
def test_a_session_timeout_outside_of_the_limits_is_refused(
    groups: Groups, session_ms: int
) -> None:
    refused = groups.join(fresh_group(groups), session_ms=session_ms)
    assert refused.error_code == Error.INVALID_SESSION_TIMEOUT


def test_requests_that_make_no_sense_leave_the_group_unharmed(groups: Groups) -> None:
    group = fresh_group(groups)
    member = groups.stable(group).member_id

    assert groups.join("").error_code == Error.INVALID_GROUP_ID
    assert groups.join(group, "nobody").error_code == Error.UNKNOWN_MEMBER_ID
    assert groups.join("no-such-group", "me").error_code == Error.UNKNOWN_MEMBER_ID
    refused = groups.join(group, protocol_type="connect")
    assert refused.error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    refused = groups.join(group, protocols=(("other", b""),))
    assert refused.error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    assert groups.join(group, protocols=()).error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    stolen = {member: b"stolen"}
    assert groups.sync(group, "nobody", 1, stolen).error_code == Error.UNKNOWN_MEMBER_ID
    assert groups.sync(group, member, 9, stolen).error_code == Error.ILLEGAL_GENERATION
    assert groups.sync("no-such-group", member, 1).error_code == Error.UNKNOWN_MEMBER_ID
    for protocol in ({"protocol_name": "other"}, {"protocol_name": None}, {"protocol_type": None}):
        wrong = groups.sync(group, member, 1, stolen, **protocol)
        assert wrong.error_code == Error.INCONSISTENT_GROUP_PROTOCOL
        assert (wrong.protocol_type, wrong.protocol_name, wrong.assignment) == (None, None, b"")

    assert groups.heartbeat(group, member, 1) == 0
    assert groups.sync(group, member, 1, stolen).assignment == b"mine"
    described = groups.describe(group)
    assert (described.group_state, len(described.members)) == ("Stable", 1)


def test_an_assignment_for_strangers_is_dropped(groups: Groups) -> None:
    group = fresh_group(groups)
    member = groups.enter(group).member_id
    synced = groups.sync(group, member, 1, {"a": b"x", "b": b"y"})
    assert (synced.error_code, synced.assignment) == (0, b"")
    assert [each.member_id for each in groups.describe(group).members] == [member]


def test_an_assignment_too_large_to_store_is_refused_and_the_member_can_go_on(
    groups: Groups,
) -> None:
    group = fresh_group(groups)
    member = groups.enter(group).member_id
    synced = groups.sync(group, member, 1, {member: bytes(2 << 20)})
    assert synced.error_code == Error.UNKNOWN_SERVER_ERROR
    joined = groups.join(group, member)
    assert (joined.error_code, joined.generation_id) == (0, 2)
    assert groups.sync(group, member, 2, {member: b"small"}).assignment == b"small"


def test_a_group_of_another_kind_than_consumers_works_the_same(groups: Groups) -> None:
    group = fresh_group(groups)
    protocols = (("default", b"\x00worker"),)
    groups.stable(group, protocol_type="connect", protocols=protocols)
    described = groups.describe(group)
    assert (described.protocol_type, described.protocol_data) == ("connect", "default")
    assert described.members[0].member_metadata == b"\x00worker"


def test_a_full_group_takes_nobody_else() -> None:
    with Broker(group_max_size=1) as broker, Asker(broker) as asker:
        groups = Groups(asker)
        groups.find("small")
        groups.stable("small")
        assert groups.join("small").error_code == Error.GROUP_MAX_SIZE_REACHED


def test_a_name_longer_than_any_string_costs_its_sender_the_connection(
    groups: Groups, moldau_session_broker: Broker
) -> None:
    group = fresh_group(groups)
    member = groups.stable(group).member_id
    with Asker(moldau_session_broker) as other, pytest.raises(AssertionError, match="closed"):
        Groups(other).join("x" * 40_000)
    assert groups.join("x" * 32_767).error_code == Error.MEMBER_ID_REQUIRED
    assert groups.heartbeat(group, member, 1) == 0
