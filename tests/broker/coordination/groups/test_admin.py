"""DescribeGroups, ListGroups and DeleteGroups over the wire, in every version."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.asking import fresh_name, versions
from tests.broker.coordination.groups.asking import Groups, fresh_group


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_GROUPS))
def test_a_group_is_described_in_every_version(groups: Groups, version: int) -> None:
    group = fresh_group(groups)
    member = groups.stable(group, protocols=(("range", b"wants"),), instance="one").member_id
    described = groups.describe(group, version)
    assert (described.error_code, described.group_state) == (0, "Stable")
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    (found,) = described.members
    assert (found.member_id, found.client_id) == (member, "test")
    assert found.client_host == "/127.0.0.1"
    assert (found.member_metadata, found.member_assignment) == (b"wants", b"mine")


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_GROUPS))
def test_a_group_that_is_not_there_is_dead(groups: Groups, version: int) -> None:
    described = groups.describe(fresh_group(groups), version)
    assert described.group_state == "Dead"
    assert described.members == ()
    assert described.error_code == (Error.GROUP_ID_NOT_FOUND if version >= 6 else 0)


def test_what_may_be_done_with_a_group_is_told_when_asked(groups: Groups) -> None:
    group = fresh_group(groups)
    groups.stable(group)
    answer = groups.asker.ask(
        Api.DESCRIBE_GROUPS, 5, groups=[group], include_authorized_operations=True
    )
    # READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS
    assert answer.groups[0].authorized_operations == 0b1101_0100_1000


def listed(groups: Groups, version: int, **filters: Any) -> dict[str, Any]:
    answer = groups.asker.ask(Api.LIST_GROUPS, version, **filters)
    assert answer.error_code == 0
    return {each.group_id: each for each in answer.groups}


@pytest.mark.parametrize("version", versions(Api.LIST_GROUPS))
def test_groups_are_listed_in_every_version(groups: Groups, version: int) -> None:
    stable, empty = fresh_group(groups), fresh_group(groups)
    groups.stable(stable)
    groups.leave(empty, groups.stable(empty).member_id)
    found = listed(groups, version)
    assert {stable, empty} <= found.keys()
    assert found[stable].protocol_type == "consumer"
    if version >= 4:
        assert (found[stable].group_state, found[empty].group_state) == ("Stable", "Empty")
        only = listed(groups, version, states_filter=["stable", "Nonsense"])
        assert stable in only
        assert empty not in only
    if version >= 5:
        assert found[stable].group_type == "classic"
        assert stable in listed(groups, version, types_filter=["Classic"])
        others = listed(groups, version, types_filter=["consumer", "share"])
        assert not {stable, empty} & others.keys()


@pytest.mark.parametrize("version", versions(Api.DELETE_GROUPS))
def test_empty_groups_are_deleted_with_their_offsets(groups: Groups, version: int) -> None:
    topic = groups.asker.create(fresh_name()).name
    empty, busy, missing = (fresh_group(groups) for _ in range(3))
    groups.commit(empty, {(topic, 0): 5})
    groups.stable(busy)
    answer = groups.asker.ask(
        Api.DELETE_GROUPS, version, groups_names=[empty, busy, missing, empty]
    )
    assert {each.group_id: each.error_code for each in answer.results} == {
        empty: 0,
        busy: Error.NON_EMPTY_GROUP,
        missing: Error.GROUP_ID_NOT_FOUND,
    }
    assert groups.committed(empty, topic, 0) == [-1]
    assert empty not in listed(groups, 5)
    groups.commit(empty, {(topic, 0): 1})
    assert groups.committed(empty, topic, 0) == [1]
