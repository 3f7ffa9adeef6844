"""Every API, with no right, the right one, a prefixed one, a deny beside an allow, a wrong host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.broker.api import registry
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.acls import CLUSTER_NAME, Operation, Resource
from moldau.wire.apis import Api
from tests.broker.api.access.cases import (
    CASES,
    CLUSTER_FAILED,
    ELSEWHERE,
    FAILED,
    PARTITION,
    TOPIC_FAILED,
    VERSIONS,
    WITHOUT_REFUSAL,
    G,
    O,
    T,
)
from tests.broker.principals import DENY, PREFIXED, Person, codes, guarded


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with guarded() as broker:
        with Person(broker, "admin") as admin:
            created = admin.ask(
                Api.CREATE_TOPICS,
                topics=[{"name": T, "num_partitions": 1, "replication_factor": 1}],
            )
            assert codes(created) == {0}
            admin.ask(Api.FIND_COORDINATOR, coordinator_keys=[G])
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[Person]:
    with Person(broker, "admin") as admin:
        # There is a group, whatever the last test did to it.
        commit = [{"name": T, "partitions": [{**PARTITION, "committed_offset": 1}]}]
        coordinates: dict[str, Any] = {"group_id": G, "generation_id_or_member_epoch": -1}
        until(
            lambda: codes(admin.ask(Api.OFFSET_COMMIT, 9, **coordinates, topics=commit)) == {0},
            "the coordinator",
        )
        yield admin
        admin.revoke()


def ask(person: Person, api: Api) -> set[int]:
    return codes(person.ask(api, VERSIONS.get(api), **CASES[api].values)) & FAILED


@pytest.mark.parametrize("api", CASES, ids=lambda api: Api(api).name)
def test_an_api_is_refused_without_its_rights_and_served_with_them(
    broker: Broker, admin: Person, api: Api
) -> None:
    case = CASES[api]
    with Person(broker, "alice") as alice, Person(broker, "bob") as bob:
        assert ask(alice, api) == {case.error}
        assert ask(admin, api) == set()
        for right in case.rights:
            admin.grant("alice", *right, host="10.9.9.9")
        assert ask(alice, api) == {case.error}, "a wrong host"
        for count, right in enumerate(case.rights):
            assert ask(alice, api), f"only {count} of the rights"
            admin.grant("alice", *right)
        if case.rights:
            assert ask(alice, api) == set(), "all rights"
            assert ask(bob, api) == {case.error}, "the rights of another"
        admin.revoke("alice")
        for operation, resource, name in case.rights:
            # There is but one name that the cluster can go by.
            prefix = name if resource is Resource.CLUSTER else name[:5]
            admin.grant("alice", operation, resource, prefix, pattern=PREFIXED)
        if case.rights:
            assert ask(alice, api) == set(), "prefixed rights"
        for right in case.rights:
            admin.grant("alice", *right, permission=DENY)
        assert ask(alice, api) == {case.error}, "a deny beside an allow"


def test_every_api_is_looked_at() -> None:
    declared = {Api(api) for api in registry.load()}
    assert declared - CASES.keys() - WITHOUT_REFUSAL - ELSEWHERE == set()
    assert not (CASES.keys() | WITHOUT_REFUSAL | ELSEWHERE) - declared


def test_what_may_not_be_seen_is_not_told(broker: Broker, admin: Person) -> None:
    coordinates: dict[str, Any] = {"group_id": G, "generation_id_or_member_epoch": -1}
    commit = [{"name": T, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    assert codes(admin.ask(Api.OFFSET_COMMIT, 9, **coordinates, topics=commit)) == {0}
    with Person(broker, "alice") as alice:
        for topics in (None, [{"name": T}]):
            everything = admin.ask(Api.METADATA, topics=topics).topics
            assert any(each.name == T and each.partitions for each in everything)
            seen = alice.ask(Api.METADATA, topics=topics).topics
            if topics is None:
                assert seen == ()
            else:
                (hidden,) = seen
                nothing = (TOPIC_FAILED, T, (), None, False)
                assert nothing == (
                    hidden.error_code,
                    hidden.name,
                    hidden.partitions,
                    hidden.topic_id,
                    hidden.is_internal,
                )
        topic_id = next(t.topic_id for t in everything if t.name == T)
        (by_id,) = alice.ask(Api.METADATA, topics=[{"name": None, "topic_id": topic_id}]).topics
        assert (by_id.error_code, by_id.name, by_id.topic_id) == (TOPIC_FAILED, None, topic_id)
        assert alice.ask(Api.LIST_GROUPS).groups == ()
        assert [each.group_id for each in admin.ask(Api.LIST_GROUPS).groups] == [G]
        assert alice.ask(Api.DESCRIBE_TOPIC_PARTITIONS, topics=[]).topics == ()
        # A topic that is there and one that is not are answered alike.
        deleted = alice.ask(Api.DELETE_TOPICS, topics=[{"name": T}, {"name": "none-such"}])
        answers = {
            (each.error_code, each.error_message, each.topic_id) for each in deleted.responses
        }
        assert len(answers) == 1
        admin.grant("alice", O.DESCRIBE, Resource.GROUP, G)
        assert [each.group_id for each in alice.ask(Api.LIST_GROUPS).groups] == [G]
        # All offsets of a group: those of topics that may be seen.
        all_of_it: dict[str, Any] = {
            "groups": [{"group_id": G, "member_epoch": -1, "topics": None}]
        }
        assert alice.ask(Api.OFFSET_FETCH, 9, **all_of_it).groups[0].topics == ()
        assert [t.name for t in admin.ask(Api.OFFSET_FETCH, 9, **all_of_it).groups[0].topics] == [T]


def test_permitted_operations_are_those_of_who_asks(broker: Broker, admin: Person) -> None:
    def bits(*operations: Operation) -> int:
        return sum(1 << operation for operation in operations)

    admin.grant("alice", O.READ, Resource.TOPIC, T)
    admin.grant("alice", O.READ, Resource.GROUP, G)
    with Person(broker, "alice") as alice:
        wanted: dict[str, Any] = {
            "topics": [{"name": T}],
            "include_topic_authorized_operations": True,
        }
        (described,) = alice.ask(Api.METADATA, **wanted).topics
        assert described.topic_authorized_operations == bits(O.READ, O.DESCRIBE)
        groups: dict[str, Any] = {"groups": [G], "include_authorized_operations": True}
        (found,) = alice.ask(Api.DESCRIBE_GROUPS, 5, **groups).groups
        assert found.authorized_operations == bits(O.READ, O.DESCRIBE)
        every_bit: dict[str, Any] = {"include_cluster_authorized_operations": True}
        answer = alice.ask(Api.DESCRIBE_CLUSTER, **every_bit)
        assert (answer.error_code, answer.cluster_authorized_operations) == (0, 0)
        old: dict[str, Any] = {"topics": [], **every_bit}
        assert alice.ask(Api.METADATA, 10, **old).cluster_authorized_operations == 0
        admin.grant("alice", O.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
        answer = alice.ask(Api.DESCRIBE_CLUSTER, **every_bit)
        assert answer.cluster_authorized_operations == bits(O.DESCRIBE)


def test_a_topic_is_created_by_asking_for_it_only_with_the_right(
    broker: Broker, admin: Person
) -> None:
    admin.grant("alice", O.DESCRIBE, Resource.TOPIC, "new", pattern=PREFIXED)
    with Person(broker, "alice") as alice:
        (refused,) = alice.ask(Api.METADATA, topics=[{"name": "new-1"}]).topics
        assert refused.error_code == TOPIC_FAILED
        admin.grant("alice", O.CREATE, Resource.TOPIC, "new", pattern=PREFIXED)
        (created,) = alice.ask(Api.METADATA, topics=[{"name": "new-1"}]).topics
        assert (created.error_code, len(created.partitions)) == (0, 1)
        # Who may write to any topic may have a producer id.
        init: dict[str, Any] = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
        assert alice.ask(Api.INIT_PRODUCER_ID, **init).error_code == CLUSTER_FAILED
        admin.grant("alice", O.WRITE, Resource.TOPIC, "new", pattern=PREFIXED)
        assert alice.ask(Api.INIT_PRODUCER_ID, **init).error_code == 0


def test_who_may_create_but_not_describe_settings_is_not_told_them(
    broker: Broker, admin: Person
) -> None:
    admin.grant("alice", O.CREATE, Resource.TOPIC, "blind")
    with Person(broker, "alice") as alice:
        wanted: dict[str, Any] = {"name": "blind", "num_partitions": 3, "replication_factor": 1}
        (made,) = alice.ask(Api.CREATE_TOPICS, topics=[wanted], validate_only=True).topics
        assert (made.error_code, made.topic_config_error_code) == (0, TOPIC_FAILED)
        assert (made.num_partitions, made.replication_factor, made.configs) == (-1, -1, ())
