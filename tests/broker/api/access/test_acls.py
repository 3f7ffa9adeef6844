"""DescribeAcls, CreateAcls and DeleteAcls; and rules that change while somebody waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.broker.security.principal import Principal
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.acls import Operation, Resource
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.principals import DENY, PREFIXED, Person, codes, every, guarded
from tests.broker.wire_client import (
    Client,
    fresh_name,
    inside,
    make_batch,
    read_records,
    until_parked,
    versions,
)

DENIED = Error.TOPIC_AUTHORIZATION_FAILED
READ = Operation.READ


@pytest.fixture
def broker() -> Iterator[Broker]:
    with guarded() as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[Person]:
    with Person(broker, "admin") as admin:
        yield admin


def creation(**changed: Any) -> dict[str, Any]:
    return {
        "resource_type": 2,
        "resource_name": "orders",
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    } | changed


def found(answer: Any) -> list[tuple[Any, ...]]:
    assert answer.error_code == 0
    return [
        (each.resource_name, each.pattern_type, acl.principal, acl.operation, acl.permission_type)
        for each in answer.resources
        for acl in each.acls
    ]


@pytest.mark.parametrize("version", versions(Api.CREATE_ACLS))
def test_rules_are_created_described_and_deleted(admin: Person, version: int) -> None:
    rules = [
        creation(),
        creation(operation=4),
        creation(resource_name="o", resource_pattern_type=4),
    ]
    for _ in range(2):
        assert codes(admin.ask(Api.CREATE_ACLS, version, creations=rules)) == {0}
        assert found(admin.ask(Api.DESCRIBE_ACLS, version, **every())) == [
            ("o", 4, "User:alice", 3, 3),
            ("orders", 3, "User:alice", 3, 3),
            ("orders", 3, "User:alice", 4, 3),
        ]
    match = {**every(), "resource_type_filter": 2, "resource_name_filter": "orders"}
    assert len(found(admin.ask(Api.DESCRIBE_ACLS, version, **match))) == 2
    match["pattern_type_filter"] = 2
    assert len(found(admin.ask(Api.DESCRIBE_ACLS, version, **match))) == 3
    deleted = admin.ask(Api.DELETE_ACLS, version, filters=[match, every("nobody")])
    assert [len(each.matching_acls) for each in deleted.filter_results] == [3, 0]
    assert found(admin.ask(Api.DESCRIBE_ACLS, version, **every())) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        ({"principal": "alice"}, "Could not parse principal"),
    ],
)
def test_a_rule_that_cannot_be_kept_is_refused_beside_one_that_can(
    admin: Person, wrong: dict[str, Any], message: str
) -> None:
    refused, made = admin.ask(Api.CREATE_ACLS, creations=[creation(**wrong), creation()]).results
    assert refused.error_code == Error.INVALID_REQUEST
    assert message in (refused.error_message or "")
    assert (made.error_code, made.error_message) == (0, "")


def test_a_broker_without_an_authorizer_says_so() -> None:
    with Broker() as broker, Client(broker) as client:
        for answer in (
            client.ask(Api.DESCRIBE_ACLS, **every()),
            client.ask(Api.CREATE_ACLS, creations=[creation()]),
            client.ask(Api.DELETE_ACLS, filters=[every()]),
        ):
            assert codes(answer) - {0} == {Error.SECURITY_DISABLED}


def test_rules_outlive_the_broker(broker: Broker, admin: Person) -> None:
    admin.grant("alice", READ, Resource.GROUP, "a group with a / and an ü", pattern=PREFIXED)
    before = admin.ask(Api.DESCRIBE_ACLS, **every()).resources
    broker.stop()
    broker.start()
    with Person(broker, "admin") as again:
        assert again.ask(Api.DESCRIBE_ACLS, **every()).resources == before


def test_two_who_alter_the_same_resource_at_once_both_have_their_way(
    broker: Broker, admin: Person
) -> None:
    with Person(broker, "admin") as other:
        for number in range(20):
            admin.send(Api.CREATE_ACLS, creations=[creation(principal=f"User:a{number}")])
            other.send(Api.CREATE_ACLS, creations=[creation(principal=f"User:b{number}")])
        for _ in range(20):
            assert codes(admin.receive()) == codes(other.receive()) == {0}
    assert len(found(admin.ask(Api.DESCRIBE_ACLS, **every()))) == 40


# What waits, or was begun, before a rule changed


def fetch(topic: str, **changed: Any) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    return {
        "max_wait": 20_000,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
    } | changed


def create(admin: Person) -> str:
    name = fresh_name("guarded")
    wanted = {"name": name, "num_partitions": 1, "replication_factor": 1}
    assert codes(admin.ask(Api.CREATE_TOPICS, topics=[wanted])) == {0}
    return name


def write(person: Person, *topics: str, expected: int = 0) -> None:
    partition = {"index": 0, "records": bytes(make_batch(b"secret"))}
    data = [{"name": topic, "partition_data": [partition]} for topic in topics]
    assert codes(person.ask(Api.PRODUCE, 12, acks=1, timeout=1000, topic_data=data)) == {expected}


def test_a_right_to_write_that_was_used_is_gone_when_it_is_taken(
    broker: Broker, admin: Person
) -> None:
    topic, other = create(admin), create(admin)
    with Person(broker, "alice") as alice:
        for _ in range(2):
            write(alice, topic, expected=DENIED)
            admin.grant("alice", Operation.WRITE, Resource.TOPIC, topic)
            write(alice, topic)
            write(alice, topic)
            # What one may do to one topic is nothing that counts for another.
            write(alice, other, expected=DENIED)
            assert admin.revoke("alice") == 1
        write(alice, topic, expected=DENIED)


def test_a_connection_that_becomes_somebody_else_has_nothing_of_who_it_was(
    broker: Broker, admin: Person
) -> None:
    topic = create(admin)
    admin.grant("alice", Operation.WRITE, Resource.TOPIC, topic)
    with Person(broker, "alice") as alice:
        write(alice, topic)
        port = alice.socket.getsockname()[1]

        def rename(server: Any) -> None:
            (found,) = (each for each in server.connections if each.context.client_port == port)
            found.context.become(Principal("User", "mallory"))

        inside(broker, rename)
        write(alice, topic, expected=DENIED)


def test_every_admission_is_counted_where_that_is_wanted() -> None:
    with (
        guarded(audit_admissions_enable="true", audit_interval_ms="600000") as broker,
        Person(broker, "admin") as admin,
    ):
        topic = create(admin)
        for _ in range(3):
            write(admin, topic)

        def counts(api: Api) -> list[tuple[int, set[str]]]:
            audit: Any = inside(broker, lambda server: server.guard.audit)
            entries = audit._entries.items()
            return [(each.count, each.names) for kind, each in entries if kind[2] == api]

        assert counts(Api.PRODUCE) == [(3, {topic})]
        before = sum(count for count, _ in counts(Api.METADATA))
        for _ in range(3):
            assert admin.ask(Api.METADATA, topics=[{"name": topic}]).topics[0].error_code == 0
        (found,) = counts(Api.METADATA)
        assert (found[0] - before, topic in found[1]) == (3, True)


def test_a_right_that_goes_while_a_fetch_waits_is_gone_when_records_come(
    broker: Broker, admin: Person
) -> None:
    topic = create(admin)
    admin.grant("alice", READ, Resource.TOPIC, topic)
    with Person(broker, "alice") as alice:
        alice.send(Api.FETCH, 12, **fetch(topic))
        partition = inside(broker, lambda server: server.partitions[topic, 0])
        until_parked(partition)
        assert admin.revoke("alice") == 1
        write(admin, topic)
        (answer,) = alice.receive().responses
        assert [(each.error_code, each.records) for each in answer.partitions] == [(DENIED, b"")]


def test_a_session_that_was_begun_before_a_deny_reads_nothing_after_it(
    broker: Broker, admin: Person
) -> None:
    topic = create(admin)
    write(admin, topic)
    admin.grant("alice", READ, Resource.TOPIC, topic)
    with Person(broker, "alice") as alice, Person(broker, "mallory") as mallory:
        first = alice.ask(Api.FETCH, 12, **fetch(topic, session_epoch=0))
        assert first.responses[0].partitions[0].records
        # Another cannot go on with it, nor end it.
        session: dict[str, Any] = {"session_id": first.session_id, "topics": [], "max_wait": 0}
        stolen = mallory.ask(Api.FETCH, 12, **fetch(topic, session_epoch=1, **session))
        assert stolen.error_code == Error.FETCH_SESSION_ID_NOT_FOUND
        mallory.ask(Api.FETCH, 12, **fetch(topic, session_epoch=-1, **session))
        again = alice.ask(Api.FETCH, 12, **fetch(topic, session_epoch=1, **session))
        assert again.error_code == 0
        admin.grant("alice", READ, Resource.TOPIC, topic, permission=DENY)
        denied = alice.ask(Api.FETCH, 12, **fetch(topic, session_epoch=2, **session))
        (answer,) = denied.responses[0].partitions
        assert (answer.error_code, answer.records) == (DENIED, b"")
        admin.revoke("alice")
        admin.grant("alice", READ, Resource.TOPIC, topic)
        allowed = alice.ask(Api.FETCH, 12, **fetch(topic, session_epoch=3, **session))
        assert allowed.responses[0].partitions[0].records


def test_what_one_is_told_of_topics_is_never_told_to_another(broker: Broker, admin: Person) -> None:
    topic = create(admin)
    admin.grant("alice", READ, Resource.TOPIC, topic)
    with Person(broker, "alice") as alice, Person(broker, "bob") as bob, Client(broker) as nobody:
        for _ in range(3):
            for person, expected in ((alice, {0}), (bob, {DENIED}), (nobody, {DENIED})):
                named: dict[str, Any] = {
                    "topics": [{"name": topic}],
                    "allow_auto_topic_creation": False,
                }
                assert codes(person.ask(Api.METADATA, **named)) - {0} == expected - {0}
                shown = [t.name for t in person.ask(Api.METADATA, topics=None).topics]
                assert (topic in shown) == (person is alice)
        admin.revoke("alice")
        assert topic not in [t.name for t in alice.ask(Api.METADATA, topics=None).topics]


def test_one_who_may_not_act_for_the_cluster_cannot_fetch_as_a_follower(
    broker: Broker, admin: Person
) -> None:
    topic = create(admin)
    write(admin, topic)
    admin.grant("alice", READ, Resource.TOPIC, topic)
    with Person(broker, "alice") as alice:
        answer = alice.ask(Api.FETCH, 12, **fetch(topic, replica_id=1))
        (partition,) = answer.responses[0].partitions
        assert (partition.error_code, partition.records) == (DENIED, b"")


def test_a_denied_topic_does_not_hurry_a_fetch_of_others(broker: Broker, admin: Person) -> None:
    allowed, denied = create(admin), create(admin)
    admin.grant("alice", READ, Resource.TOPIC, allowed)
    wanted = fetch(allowed)
    wanted["topics"] += fetch(denied)["topics"]
    with Person(broker, "alice") as alice:
        alice.send(Api.FETCH, 12, **wanted)
        until_parked(inside(broker, lambda server: server.partitions[allowed, 0]))
        write(admin, allowed)
        answer = alice.receive()
    outcomes = {
        each.topic: (each.partitions[0].error_code, bool(each.partitions[0].records))
        for each in answer.responses
    }
    assert outcomes == {allowed: (0, True), denied: (DENIED, False)}


# The audit


def test_a_broker_that_stops_writes_the_refusals_of_the_last_interval() -> None:
    with guarded(audit_topic="refusals") as broker:
        with Person(broker, "mallory") as mallory:
            assert DENIED in codes(mallory.ask(Api.METADATA, topics=[{"name": "secret"}]))
        broker.stop()
        broker.start()
        with Person(broker, "admin") as admin:
            answer = admin.ask(Api.FETCH, 12, **fetch("refusals", max_wait=0))
        (found,) = read_records(answer.responses[0].partitions[0].records)
        assert json.loads(found.value or b"")["principal"] == "User:mallory"


def test_refusals_are_written_to_a_topic_where_that_is_wanted() -> None:
    with (
        guarded(audit_topic="refusals", audit_interval_ms=100) as broker,
        Person(broker, "admin") as admin,
        Person(broker, "mallory") as mallory,
    ):
        for number in range(50):
            named = {"name": f"secret-{number}"}
            assert DENIED in codes(mallory.ask(Api.METADATA, topics=[named]))
        found: list[dict[str, Any]] = []

        def is_there() -> bool:
            answer = admin.ask(Api.FETCH, 12, **fetch("refusals", max_wait=0))
            data = answer.responses[0].partitions[0].records
            found[:] = [json.loads(each.value or b"") for each in read_records(data)]
            return bool(sum(entry["count"] for entry in found) >= 50)

        until(is_there, "the entries of the audit")
        assert {(each["principal"], each["operation"], each["api"]) for each in found} == {
            ("User:mallory", "Describe", "METADATA")
        }
        assert found[0]["decision"] == "denied"
        assert found[0]["rule"] == "no rule for the resource"
