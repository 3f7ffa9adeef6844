"""Rights on topics, for members of share groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.acls import Operation, Resource
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.principals import Person, codes, guarded


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with guarded() as broker:
        yield broker


def test_who_may_use_the_group_still_needs_the_topic(broker: Broker) -> None:
    denied = {Error.TOPIC_AUTHORIZATION_FAILED}
    with Person(broker, "admin") as admin, Person(broker, "alice") as alice:
        new = {"name": "jobs", "num_partitions": 1, "replication_factor": 1}
        created = admin.ask(Api.CREATE_TOPICS, topics=[new])
        topic_id = created.topics[0].topic_id
        admin.ask(Api.FIND_COORDINATOR, coordinator_keys=["g"])
        for operation in (Operation.READ, Operation.DESCRIBE, Operation.DELETE):
            admin.grant("alice", operation, Resource.GROUP, "g")

        def beat(person: Person, epoch: int) -> Any:
            return person.ask(
                Api.SHARE_GROUP_HEARTBEAT,
                group_id="g",
                member_id="m",
                member_epoch=epoch,
                subscribed_topic_names=["jobs"],
            )

        until(lambda: codes(beat(admin, 0)) == {0}, "the coordinator")
        assert codes(beat(alice, 1)) == denied
        batch = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
        partition = {"partition_index": 0, "acknowledgement_batches": [batch]}
        topics = [{"topic_id": topic_id, "partitions": [{"partition_index": 0}]}]
        said = [{"topic_id": topic_id, "partitions": [partition]}]
        session: dict[str, Any] = {"group_id": "g", "member_id": "m", "max_wait": 0}
        fetched = alice.ask(Api.SHARE_FETCH, **session, share_session_epoch=0, topics=topics)
        assert codes(fetched) - {0} == denied
        told = alice.ask(
            Api.SHARE_ACKNOWLEDGE,
            group_id="g",
            member_id="m",
            share_session_epoch=1,
            topics=said,
        )
        assert codes(told) - {0} == denied
        described = alice.ask(Api.SHARE_GROUP_DESCRIBE, group_ids=["g"])
        assert codes(described) == denied
        assert codes(beat(admin, -1)) == {0}
        named = [{"topic_name": "jobs", "partitions": [{"partition_index": 0}]}]
        altered = alice.ask(Api.ALTER_SHARE_GROUP_OFFSETS, group_id="g", topics=named)
        assert codes(altered) - {0} == denied
        forgotten = alice.ask(
            Api.DELETE_SHARE_GROUP_OFFSETS, group_id="g", topics=[{"topic_name": "jobs"}]
        )
        assert codes(forgotten) - {0} == denied
        shown = alice.ask(
            Api.DESCRIBE_SHARE_GROUP_OFFSETS,
            groups=[{"group_id": "g", "topics": [{"topic_name": "jobs", "partitions": [0]}]}],
        )
        assert codes(shown) - {0} == denied
