"""Requests that name a topic without partitions, or nothing at all: answered as Kafka does."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.wire.apis import Api
from tests.broker.wire_client import Client, fetch_values, fresh_name, produce_values, versions


@pytest.mark.parametrize("api", [Api.PRODUCE, Api.FETCH])
def test_a_topic_without_partitions_is_left_out_where_records_go(client: Client, api: Api) -> None:
    topic = client.create()
    for version in versions(api):
        key: Any = client.topic_id(topic) if version >= 13 else topic
        if api is Api.PRODUCE:
            values = produce_values({key: {}})
        else:
            # Nothing to wait for: answered at once.
            values = fetch_values({key: []}, max_wait=60_000)
        assert client.ask(api, version, **values).responses == ()


@pytest.mark.parametrize("api", [Api.LIST_OFFSETS, Api.DELETE_RECORDS, Api.OFFSET_COMMIT])
def test_a_topic_without_partitions_is_left_out(client: Client, api: Api) -> None:
    topic, group = client.create(), fresh_name("group")
    values: dict[str, Any] = {"topics": [{"name": topic, "partitions": []}]}
    if api is Api.OFFSET_COMMIT:
        client.ask(Api.FIND_COORDINATOR, 3, key=group, key_type=0)
        values |= {"group_id": group, "member_id": "", "generation_id_or_member_epoch": -1}
    for version in versions(api):
        if version < 10:
            assert client.ask(api, version, **values).topics == ()


def test_offsets_of_no_partition_are_not_deleted(client: Client) -> None:
    topic, group = client.create(), fresh_name("group")
    client.ask(Api.FIND_COORDINATOR, 3, key=group, key_type=0)
    offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    client.ask(
        Api.OFFSET_COMMIT,
        7,
        group_id=group,
        member_id="",
        generation_id_or_member_epoch=-1,
        topics=[{"name": topic, "partitions": [offset]}],
    )
    empty = [{"name": topic, "partitions": []}]
    answer = client.ask(Api.OFFSET_DELETE, group_id=group, topics=empty)
    assert (answer.error_code, answer.topics) == (0, ())


def test_an_election_answers_topics_as_they_were_asked_for(client: Client) -> None:
    topic = client.create(partitions=2)
    asked = [(topic, [1]), (topic, []), (topic, [0])]
    answer = client.ask(
        Api.ELECT_LEADERS,
        election_type=0,
        timeout=1000,
        topic_partitions=[{"topic": name, "partitions": indexes} for name, indexes in asked],
    )
    assert [
        (each.topic, [result.partition_id for result in each.partition_result])
        for each in answer.replica_election_results
    ] == asked


@pytest.mark.parametrize("version", versions(Api.ALTER_PARTITION_REASSIGNMENTS))
def test_a_move_of_nothing_has_an_empty_message(client: Client, version: int) -> None:
    answer = client.ask(Api.ALTER_PARTITION_REASSIGNMENTS, version, timeout=1000, topics=[])
    assert (answer.error_code, answer.error_message, answer.responses) == (0, "", ())


def test_a_topic_named_twice_has_one_answer_about_its_offsets(client: Client) -> None:
    topic = client.create(partitions=2)
    asked = [
        {"partition_index": index, "timestamp": -1, "current_leader_epoch": -1} for index in (0, 1)
    ]
    topics = [{"name": topic, "partitions": [each]} for each in asked]
    answer = client.ask(Api.LIST_OFFSETS, replica_id=-1, topics=topics)
    [found] = answer.topics
    assert [each.partition_index for each in found.partitions] == [0, 1]
