"""OffsetCommit, OffsetFetch and OffsetDelete over the wire, in every version."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest

from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.asking import Asker, fresh_name, versions
from tests.broker.coordination.groups.asking import Groups, fresh_group


@pytest.fixture
def topic(asker: Asker) -> Any:
    return asker.create(fresh_name(), partitions=2)


@pytest.mark.parametrize("version", versions(Api.OFFSET_COMMIT))
def test_offsets_are_committed_in_every_version(groups: Groups, topic: Any, version: int) -> None:
    group = fresh_group(groups)
    offsets = {(topic.name, 0): 5, (topic.name, 1): 7}
    ids = {topic.name: topic.topic_id} if version >= 10 else None
    errors = groups.commit(group, offsets, version, ids=ids)
    assert errors == dict.fromkeys(offsets, 0)
    assert groups.committed(group, topic.name, 0, 1) == [5, 7]


@pytest.mark.parametrize("version", range(1, 8))
def test_one_groups_offsets_are_fetched_in_every_version(
    groups: Groups, topic: Any, version: int
) -> None:
    group = fresh_group(groups)
    groups.commit(group, {(topic.name, 0): 5}, metadata="note")
    wanted = [{"name": topic.name, "partition_indexes": [0, 1, 99]}]
    answer = groups.asker.ask(Api.OFFSET_FETCH, version, group_id=group, topics=wanted)
    assert getattr(answer, "error_code", 0) == 0
    found = [(each.committed_offset, each.metadata) for each in answer.topics[0].partitions]
    assert found == [(5, "note"), (-1, ""), (-1, "")]
    assert {each.error_code for each in answer.topics[0].partitions} == {0}
    if version >= 2:
        everything = groups.asker.ask(Api.OFFSET_FETCH, version, group_id=group, topics=None)
        assert [each.name for each in everything.topics] == [topic.name]


@pytest.mark.parametrize("version", range(8, 11))
def test_several_groups_offsets_are_fetched_at_once(
    groups: Groups, topic: Any, version: int
) -> None:
    group = fresh_group(groups)
    groups.commit(group, {(topic.name, 1): 7})
    wanted = {"name": topic.name, "topic_id": topic.topic_id, "partition_indexes": [0, 1]}
    answer = groups.asker.ask(
        Api.OFFSET_FETCH,
        version,
        require_stable=True,
        groups=[
            {"group_id": group, "topics": [wanted]},
            {"group_id": "no-such-group", "topics": [wanted]},
            {"group_id": group, "topics": None},
            {"group_id": "no-such-group", "topics": None},
        ],
    )
    assert [each.error_code for each in answer.groups] == [0] * 4
    found = [
        [each.committed_offset for topic in group.topics for each in topic.partitions]
        for group in answer.groups
    ]
    assert found == [[-1, 7], [-1, -1], [7], []]


def test_a_commit_with_its_own_retention_is_kept_like_any_other(groups: Groups, topic: Any) -> None:
    group = fresh_group(groups)
    errors = groups.commit(group, {(topic.name, 0): 5}, 2, retention_time=60_000)
    assert errors == {(topic.name, 0): 0}
    assert groups.committed(group, topic.name, 0) == [5]


def test_commits_that_make_no_sense_are_refused_each_for_itself(groups: Groups, topic: Any) -> None:
    group = fresh_group(groups)
    errors = groups.commit(
        group, {(topic.name, 0): 1, (topic.name, 2): 2, (topic.name, -1): 3, ("gone", 0): 4}
    )
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert list(errors.values()) == [0, unknown, unknown, unknown]
    too_long = groups.commit(group, {(topic.name, 0): 9}, metadata="x" * 4097)
    assert too_long == {(topic.name, 0): Error.OFFSET_METADATA_TOO_LARGE}
    longest = groups.commit(group, {(topic.name, 1): 9}, metadata="x" * 4096)
    assert longest == {(topic.name, 1): 0}
    stray = uuid.uuid4()
    errors = groups.commit(group, {("x", 0): 1}, 10, ids={"x": stray})
    assert errors == {("x", 0): Error.UNKNOWN_TOPIC_ID}
    assert groups.committed(group, topic.name, 0, 1, 2) == [1, 9, -1]


@pytest.mark.parametrize("version", [8, 9])
def test_only_members_of_the_current_generation_commit(
    groups: Groups, topic: Any, version: int
) -> None:
    group = fresh_group(groups)
    member = groups.stable(group).member_id
    key = (topic.name, 0)

    def commit(member: str, generation: int, to: str = group) -> int:
        return groups.commit(to, {key: 5}, version, member=member, generation=generation)[key]

    assert commit("nobody", 1) == Error.UNKNOWN_MEMBER_ID
    assert commit(member, 2) == Error.ILLEGAL_GENERATION
    assert commit("", -1) == Error.UNKNOWN_MEMBER_ID
    missing = Error.GROUP_ID_NOT_FOUND if version >= 9 else Error.ILLEGAL_GENERATION
    assert commit(member, 1, "no-such-group") == missing
    assert groups.committed(group, topic.name, 0) == [-1]
    assert commit(member, 1) == 0
    assert groups.committed(group, topic.name, 0) == [5]
    groups.leave(group, member)
    assert commit("", -1) == 0


def subscription(*topics: str) -> bytes:
    data = struct.pack(">hi", 0, len(topics))
    return data + b"".join(struct.pack(">h", len(each)) + each.encode() for each in topics)


def delete(groups: Groups, group: str, topic: str, *partitions: int) -> Any:
    wanted = [{"partition_index": index} for index in partitions]
    return groups.asker.ask(
        Api.OFFSET_DELETE, group_id=group, topics=[{"name": topic, "partitions": wanted}]
    )


def test_offsets_of_topics_that_nobody_reads_can_be_deleted(groups: Groups, topic: Any) -> None:
    group = fresh_group(groups)
    other = groups.asker.create(fresh_name()).name
    groups.commit(group, {(topic.name, 0): 5, (topic.name, 1): 6, (other, 0): 7})
    groups.stable(group, protocols=(("range", subscription(other)),))
    refused = delete(groups, group, other, 0)
    assert refused.topics[0].partitions[0].error_code == Error.GROUP_SUBSCRIBED_TO_TOPIC
    deleted = delete(groups, group, topic.name, 0, 99)
    codes = [each.error_code for each in deleted.topics[0].partitions]
    assert codes == [0, Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert groups.committed(group, topic.name, 0, 1) == [-1, 6]
    assert groups.committed(group, other, 0) == [7]
    assert delete(groups, "no-such-group", other, 0).error_code == Error.GROUP_ID_NOT_FOUND


def test_a_deleted_topic_takes_its_offsets_with_it(groups: Groups, topic: Any) -> None:
    group = fresh_group(groups)
    kept = groups.asker.create(fresh_name()).name
    groups.commit(group, {(topic.name, 0): 5, (kept, 0): 6})
    groups.asker.ask(
        Api.DELETE_TOPICS, topics=[{"name": topic.name, "topic_id": None}], timeout=5_000
    )
    groups.asker.create(topic.name, 2)
    assert groups.committed(group, topic.name, 0) == [-1]
    assert groups.committed(group, kept, 0) == [6]


def test_a_commit_of_more_than_one_batch_holds_is_all_there(groups: Groups, asker: Asker) -> None:
    group = fresh_group(groups)
    wide = asker.create(fresh_name(), partitions=400).name
    offsets = {(wide, index): index for index in range(400)}
    errors = groups.commit(group, offsets, metadata="x" * 4000)
    assert set(errors.values()) == {0}
    assert groups.committed(group, wide, *range(400)) == list(range(400))
