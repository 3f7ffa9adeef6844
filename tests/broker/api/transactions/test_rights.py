"""Rights of transactional producers: none, each one alone, prefixed, denied, from a wrong host.

What one request of each API takes is in `access/test_rights.py`; here are the requests that take
other rights in a transaction than without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.acls import CLUSTER_NAME, Operation, Resource
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.api.transactions.producing import TV1, Producer
from tests.broker.principals import DENY, PREFIXED, Person, codes, guarded
from tests.broker.wire_client import make_batch

Right = tuple[Operation, Resource, str]
T, X = "the-topic", "the-transactional-id"
TOPIC_FAILED = Error.TOPIC_AUTHORIZATION_FAILED
ID_FAILED = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
CLUSTER_FAILED = Error.CLUSTER_AUTHORIZATION_FAILED
FAILED = {TOPIC_FAILED, ID_FAILED, CLUSTER_FAILED, Error.GROUP_AUTHORIZATION_FAILED}

WRITE_ID = (Operation.WRITE, Resource.TRANSACTIONAL_ID, X)
DESCRIBE_ID = (Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, X)
TWO_PHASE = (Operation.TWO_PHASE_COMMIT, Resource.TRANSACTIONAL_ID, X)
WRITE_TOPIC = (Operation.WRITE, Resource.TOPIC, T)
ALTER = (Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
CLUSTER_ACTION = (Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)


class Case(NamedTuple):
    """A request, the rights that it takes, and the error without the last of them."""

    api: Api
    version: int
    values: dict[str, Any]
    rights: list[Right]
    errors: list[Error]


INIT = {
    "transactional_id": X,
    "transaction_timeout": 60_000,
    "producer_id": -1,
    "producer_epoch": -1,
}
_BATCH = make_batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
CASES = {
    "init": Case(Api.INIT_PRODUCER_ID, 5, INIT, [WRITE_ID], [ID_FAILED]),
    "init of old": Case(Api.INIT_PRODUCER_ID, 0, INIT, [WRITE_ID], [ID_FAILED]),
    "init without two-phase commit": Case(Api.INIT_PRODUCER_ID, 6, INIT, [WRITE_ID], [ID_FAILED]),
    "init with two-phase commit": Case(
        Api.INIT_PRODUCER_ID,
        6,
        INIT | {"enable2_pc": True},
        [WRITE_ID, TWO_PHASE],
        [ID_FAILED, ID_FAILED],
    ),
    "taking over": Case(
        Api.INIT_PRODUCER_ID,
        6,
        INIT | {"enable2_pc": True, "keep_prepared_txn": True},
        [TWO_PHASE, WRITE_ID],
        [ID_FAILED, ID_FAILED],
    ),
    "find coordinator": Case(
        Api.FIND_COORDINATOR,
        6,
        {"key_type": 1, "coordinator_keys": [X]},
        [DESCRIBE_ID],
        [ID_FAILED],
    ),
    "find coordinator of old": Case(
        Api.FIND_COORDINATOR, 1, {"key_type": 1, "key": X}, [DESCRIBE_ID], [ID_FAILED]
    ),
    "produce": Case(
        Api.PRODUCE,
        11,
        {
            "transactional_id": X,
            "acks": -1,
            "timeout": 1000,
            "topic_data": [{"name": T, "partition_data": [{"index": 0, "records": bytes(_BATCH)}]}],
        },
        [WRITE_ID, WRITE_TOPIC],
        [ID_FAILED, TOPIC_FAILED],
    ),
    "add partitions, as a broker": Case(
        Api.ADD_PARTITIONS_TO_TXN,
        5,
        {
            "transactions": [
                {
                    "transactional_id": X,
                    "producer_id": 7,
                    "producer_epoch": 0,
                    "verify_only": False,
                    "topics": [{"name": T, "partitions": [0]}],
                }
            ]
        },
        [CLUSTER_ACTION],
        [CLUSTER_FAILED],
    ),
    "markers, as a tool": Case(
        Api.WRITE_TXN_MARKERS,
        1,
        {
            "markers": [
                {
                    "producer_id": 1,
                    "transaction_result": False,
                    "topics": [{"name": T, "partition_indexes": [0]}],
                }
            ]
        },
        [ALTER],
        [CLUSTER_FAILED],
    ),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with guarded() as broker:
        with Person(broker, "admin") as admin:
            made = [{"name": T, "num_partitions": 1, "replication_factor": 1}]
            assert codes(admin.ask(Api.CREATE_TOPICS, topics=made)) == {0}
            begin(admin)
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[Person]:
    with Person(broker, "admin") as admin:
        yield admin
        admin.revoke()


def begin(admin: Person) -> None:
    """Have a coordinator, and a producer of the transactional id."""
    admin.ask(Api.FIND_COORDINATOR, 1, key=X, key_type=1)
    until(lambda: codes(admin.ask(Api.INIT_PRODUCER_ID, 5, **INIT)) == {0}, "transactions")


def ask(person: Person, case: Case) -> set[int]:
    return codes(person.ask(case.api, case.version, **case.values)) & FAILED


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_refused_without_its_rights_and_served_with_them(
    broker: Broker, admin: Person, name: str
) -> None:
    case = CASES[name]
    with Person(broker, "alice") as alice, Person(broker, "bob") as bob:
        assert ask(admin, case) == set()
        for right in case.rights:
            admin.grant("alice", *right, host="10.9.9.9")
        for right, error in zip(case.rights, case.errors, strict=True):
            assert ask(alice, case) == {error}
            admin.grant("alice", *right)
        assert ask(alice, case) == set(), "all rights"
        assert ask(bob, case) == {case.errors[0]}, "the rights of another"
        admin.revoke("alice")
        for operation, resource, what in case.rights:
            prefix = what if resource is Resource.CLUSTER else what[:5]
            admin.grant("alice", operation, resource, prefix, pattern=PREFIXED)
        assert ask(alice, case) == set(), "prefixed rights"
        for right, error in zip(reversed(case.rights), reversed(case.errors), strict=True):
            admin.grant("alice", *right, permission=DENY)
            assert ask(alice, case) == {error}, "a deny beside an allow"


def test_two_phase_commit_is_no_part_of_any_other_right(broker: Broker, admin: Person) -> None:
    case = CASES["init with two-phase commit"]
    with Person(broker, "alice") as alice:
        for operation in (Operation.WRITE, Operation.DESCRIBE):
            admin.grant("alice", operation, Resource.TRANSACTIONAL_ID, X)
            assert ask(alice, case) == {ID_FAILED}
        # Nor does it imply one.
        admin.revoke("alice")
        admin.grant("alice", *TWO_PHASE)
        assert ask(alice, CASES["init"]) == {ID_FAILED}
        assert ask(alice, CASES["find coordinator"]) == {ID_FAILED}
        admin.revoke("alice")
        admin.grant("alice", Operation.ALL, Resource.TRANSACTIONAL_ID, X)
        assert ask(alice, case) == set()


def test_with_the_right_and_without_the_setting_there_is_no_two_phase_commit() -> None:
    with (
        guarded(transaction_two_phase_commit_enable="false") as broker,
        Person(broker, "admin") as admin,
    ):
        begin(admin)
        assert ask(admin, CASES["init with two-phase commit"]) == {ID_FAILED}


def test_transactions_that_may_not_be_described_are_not_listed(
    broker: Broker, admin: Person
) -> None:
    with Person(broker, "alice") as alice:

        def listed(who: Person) -> list[str]:
            answer = who.ask(Api.LIST_TRANSACTIONS)
            return [each.transactional_id for each in answer.transaction_states]

        assert listed(admin) == [X]
        assert listed(alice) == []
        admin.grant(
            "alice", Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, "the-", pattern=PREFIXED
        )
        assert listed(alice) == [X]
        admin.grant("alice", *DESCRIBE_ID, permission=DENY)
        assert listed(alice) == []
        # The partitions of a transaction are told to those who may describe the topics.
        admin.revoke("alice")
        admin.grant("alice", *DESCRIBE_ID)
        begin(admin)
        begun = admin.ask(Api.DESCRIBE_TRANSACTIONS, transactional_ids=[X]).transaction_states[0]
        added = admin.ask(
            Api.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=X,
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=[{"name": T, "partitions": [0]}],
        )
        assert codes(added) == {0}

        def partitions(who: Person) -> list[str]:
            answer = who.ask(Api.DESCRIBE_TRANSACTIONS, transactional_ids=[X])
            return [topic.topic for topic in answer.transaction_states[0].topics]

        assert partitions(admin) == [T]
        assert partitions(alice) == []
        admin.grant("alice", Operation.DESCRIBE, Resource.TOPIC, T)
        assert partitions(alice) == [T]


def test_batches_without_a_sequence_are_for_who_acts_for_the_cluster() -> None:
    """By them brokers write what the check against schemas has set aside of a transaction."""
    with guarded() as broker, Person(broker, "admin") as admin, Person(broker, "alice") as alice:
        topic = admin.create(T)
        for right in (WRITE_ID, WRITE_TOPIC):
            admin.grant("alice", *right)
        producer = Producer(broker, TV1, X)
        producer.client.close()
        producer.client = alice
        until(lambda: alice.ask(Api.FIND_COORDINATOR, 1, key=X, key_type=1).error_code == 0)
        producer.init()
        assert producer.ask_add((topic, 0)) == [0]
        assert producer.ask_unsequenced(topic, b"x").error_code == Error.INVALID_RECORD
        admin.grant("alice", *CLUSTER_ACTION)
        assert producer.ask_unsequenced(topic, b"x").error_code == 0
        # Her own sequences begin with 0, as if it were not there.
        assert producer.ask_produce(topic, b"y").error_code == 0
        producer.end(commits=True)
