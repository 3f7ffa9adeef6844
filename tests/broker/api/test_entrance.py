"""One entrance, one exit: what every request meets coming in, and every answer going out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.broker.api import registry
from moldau.broker.api.entrance import DecodedResponse
from moldau.broker.net.context import Context
from moldau.broker.net.exit import Exit
from moldau.broker.net.request import Request
from moldau.broker.net.responses import Response
from moldau.broker.security.authorizer import Operation, Resource
from moldau.broker.security.principal import ANONYMOUS, Principal
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import VERSIONS, Api
from moldau.wire.errors import Error
from tests.broker.asking import Asker
from tests.broker.principals import every
from tests.broker.wire_client import Client, fresh_name, inside, make_batch

DECLARED = registry.load()
_WRITE, _READ = Operation.WRITE, Operation.READ


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def create(broker: Broker) -> tuple[str, Any]:
    name = fresh_name("entrance")
    with Asker(broker) as asker:
        return name, asker.create(name).topic_id


def produce(name: str, topic_id: Any, acks: int = 1) -> dict[str, Any]:
    partition = {"index": 0, "records": bytes(make_batch(b"x"))}
    topic = {"name": name, "topic_id": topic_id, "partition_data": [partition]}
    return {"acks": acks, "timeout": 5000, "topic_data": [topic]}


def fetch(name: str, topic_id: Any, offset: int = 0, wait_ms: int = 0) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1000}
    topic = {"topic": name, "topic_id": topic_id, "partitions": [partition]}
    return {
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [topic],
    }


# Declarations


def test_an_api_declares_the_versions_that_can_be_read_and_written() -> None:
    for api, declared in DECLARED.items():
        known = VERSIONS[Api(api)]
        expected = (api, known.first, known.last)
        assert (declared.api, declared.first, declared.last) == expected


# Whoever asks for these has not said yet who it is.
BEFORE = {Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE}


def test_an_api_declares_the_rights_that_it_takes() -> None:
    without = {Api(api) for api, declared in DECLARED.items() if not declared.rights}
    assert without <= BEFORE


# Rights


class Allowing:
    """Allows all but some operations, and remembers what it was asked."""

    rules = None
    may_remember = False

    def __init__(self, *denied: Operation) -> None:
        self.denied = denied
        self.asked: set[tuple[Operation, Resource, str]] = set()

    def allows(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: Resource,
        name: str,
        api: int = -1,
        *,
        quietly: bool = False,
    ) -> bool:
        assert (principal, host) == (ANONYMOUS, "127.0.0.1")
        self.asked.add((operation, resource, name))
        return operation not in self.denied

    def allows_any(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: Resource,
        api: int,
        *,
        quietly: bool = False,
    ) -> bool:
        return self.allows(principal, host, operation, resource, "", api)


def guard(broker: Broker, *denied: Operation) -> Allowing:
    authorizer = Allowing(*denied)
    inside(broker, lambda server: setattr(server.entrance, "authorizer", authorizer))
    return authorizer


def test_produce_and_fetch_ask_for_rights_on_their_topics(broker: Broker) -> None:
    name, topic_id = create(broker)
    authorizer = guard(broker)
    with Client(broker) as client:
        for version in (7, 13):
            client.ask(Api.PRODUCE, version, **produce(name, topic_id))
            assert authorizer.asked == {(_WRITE, Resource.TOPIC, name)}
            authorizer.asked.clear()
            client.ask(Api.FETCH, version, **fetch(name, topic_id))
            assert authorizer.asked == {(_READ, Resource.TOPIC, name)}
            authorizer.asked.clear()


def test_every_request_asks_for_the_rights_that_its_api_declares(broker: Broker) -> None:
    authorizer = guard(broker)
    with Client(broker) as client:
        for api, declared in sorted(DECLARED.items()):
            if declared.reader is not None or api in (Api.ELECT_LEADERS, Api.ENVELOPE):
                continue
            for version in range(declared.first, declared.last + 1):
                authorizer.asked.clear()
                try:
                    client.ask(Api(api), version, **EXAMPLES.get(Api(api), {}))
                except Exception as reason:
                    raise AssertionError(f"{declared.api.name} v{version}") from reason
                asked = {(operation, resource) for operation, resource, _ in authorizer.asked}
                wanted = EXPECTED.get(Api(api))
                if wanted is not None:
                    assert asked == wanted, f"{declared.api.name} v{version}"


EXAMPLES: dict[Api, dict[str, Any]] = {
    Api.HEARTBEAT: {"group_id": "g", "member_id": "m"},
    Api.METADATA: {"topics": [{"name": "no name"}], "allow_auto_topic_creation": False},
    Api.DESCRIBE_GROUPS: {"groups": ["g"]},
    Api.DESCRIBE_ACLS: every(),
    Api.DESCRIBE_CONFIGS: {
        "resources": [
            {"resource_type": 2, "resource_name": "none-such", "configuration_keys": None},
            {"resource_type": 4, "resource_name": "0", "configuration_keys": None},
        ]
    },
    Api.FIND_COORDINATOR: {"key": "g", "coordinator_keys": ["g"]},
    Api.OFFSET_FETCH: {
        "group_id": "g",
        "topics": [{"name": "none-such", "partition_indexes": [0]}],
        "groups": [
            {
                "group_id": "g",
                "member_epoch": -1,
                "topics": [{"name": "none-such", "partition_indexes": [0]}],
            }
        ],
    },
}
EXPECTED = {
    Api.HEARTBEAT: {(_READ, Resource.GROUP)},
    Api.METADATA: {(Operation.DESCRIBE, Resource.TOPIC)},
    Api.DESCRIBE_GROUPS: {(Operation.DESCRIBE, Resource.GROUP)},
    Api.DESCRIBE_CONFIGS: {
        (Operation.DESCRIBE_CONFIGS, Resource.TOPIC),
        (Operation.DESCRIBE_CONFIGS, Resource.CLUSTER),
    },
    Api.FIND_COORDINATOR: {(Operation.DESCRIBE, Resource.GROUP)},
    Api.DESCRIBE_CLUSTER: set(),
    Api.ALTER_PARTITION_REASSIGNMENTS: {(Operation.ALTER, Resource.CLUSTER)},
}


def test_who_lacks_a_right_is_told_so_and_nothing_is_done(broker: Broker) -> None:
    name, topic_id = create(broker)
    guard(broker, _WRITE)
    with Client(broker) as client, Client(broker) as other:
        for version in (7, 13):
            answer = client.ask(Api.PRODUCE, version, **produce(name, topic_id))
            code = answer.responses[0].partition_responses[0].error_code
            assert code == Error.TOPIC_AUTHORIZATION_FAILED
        assert other.ask(Api.FETCH, 13, **fetch(name, topic_id)).error_code == 0
        # With acks=0 there is no answer: an error is told by closing.
        client.send(Api.PRODUCE, 13, **produce(name, topic_id, acks=0))
        until(client.is_closed)
    assert inside(broker, lambda server: server.partitions[name, 0].log.log_end) == 0


# The exit


class Counted:
    """Everything that left by the exit of a broker."""

    def __init__(self, broker: Broker) -> None:
        self.answers: list[tuple[Api, list[int], int]] = []
        self.problems: list[str] = []
        inside(broker, lambda server: setattr(server.connections.exit, "count", self._count))

    def _count(self, response: Response, parts: list[Any]) -> None:
        request = response.request
        if not 0 <= time.monotonic() - request.received_at < 200:
            self.problems.append(f"received at {request.received_at}")
        if request.context.client_host != "127.0.0.1" or request.client_id != "wire-client":
            self.problems.append(f"{request}")
        size = sum(part.size if hasattr(part, "size") else len(part) for part in parts)
        self.answers.append((Api(request.api), list(response.errors()), size))

    def last(self, frame: bytes) -> tuple[Api, list[int]]:
        """What left with this answer, and nothing else since the last call."""
        assert not self.problems
        [(api, errors, size)] = self.answers
        self.answers.clear()
        assert size == len(frame) + 4
        return api, errors


def test_every_answer_leaves_by_the_exit_once(broker: Broker) -> None:
    name, topic_id = create(broker)
    counted = Counted(broker)
    wrong = {**fetch(name, topic_id), "session_id": 77, "session_epoch": 5}
    with Client(broker) as client:

        def leave(api: Api, version: int | None = None, **values: Any) -> list[int]:
            client.send(api, version, **values)
            client._asked.clear()
            left, errors = counted.last(client.receive_frame())
            assert left is api
            return errors

        assert leave(Api.PRODUCE, 13, **produce(name, topic_id)) == []
        assert leave(Api.PRODUCE, 7, **produce("none-such", None, -1)) == [
            Error.UNKNOWN_TOPIC_OR_PARTITION
        ]
        assert leave(Api.FETCH, 13, **fetch(name, topic_id)) == []
        assert leave(Api.FETCH, 13, **fetch(name, topic_id, offset=99)) == [
            Error.OFFSET_OUT_OF_RANGE
        ]
        assert leave(Api.FETCH, 13, **fetch(name, topic_id, offset=1, wait_ms=20)) == []
        assert leave(Api.FETCH, 13, **wrong) == [Error.FETCH_SESSION_ID_NOT_FOUND]
        assert leave(Api.API_VERSIONS, 0) == []
        assert leave(Api.METADATA, topics=[{"name": name}]) == []
        assert leave(Api.HEARTBEAT, group_id="g", member_id="m") == [Error.NOT_COORDINATOR]
        # One that is answered later, and one that is long enough to be encoded on a thread.
        listed = {"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}
        assert leave(Api.LIST_OFFSETS, replica_id=-1, topics=[listed]) == []
        groups = [f"group-{number}" for number in range(101)]
        assert len(leave(Api.DESCRIBE_GROUPS, groups=groups)) == 101
        # A write with acks=0 has no answer, and leaves nevertheless.
        client.send(Api.PRODUCE, 13, **produce(name, topic_id, acks=0))
        until(lambda: counted.answers)
        assert counted.answers == [(Api.PRODUCE, [], 0)]


@pytest.mark.parametrize("version", [7, 13])
def test_a_throttle_time_is_in_every_answer_that_has_one(broker: Broker, version: int) -> None:
    name, topic_id = create(broker)

    def throttle(exit: Exit) -> None:
        exit.throttle = lambda response: 7

    inside(broker, lambda server: throttle(server.connections.exit))
    seven = 7 / 1000
    with Client(broker) as client:
        for answer in (
            client.ask(Api.PRODUCE, version, **produce(name, topic_id)),
            client.ask(Api.FETCH, version, **fetch(name, topic_id)),
            client.ask(Api.HEARTBEAT, group_id="g", member_id="m"),
            client.ask(Api.LIST_OFFSETS, replica_id=-1, topics=[]),
        ):
            assert answer.throttle_time.total_seconds() == seven


def test_every_api_can_be_throttled_in_every_version() -> None:
    nobody: Any = None
    for api, declared in DECLARED.items():
        for version in range(declared.first, declared.last + 1):
            request = Request(api, version, 1, "", Context("PLAINTEXT", "", 0, "", 0))
            plain = DecodedResponse(nobody, request, {}).encode(0)
            throttled = DecodedResponse(nobody, request, {}).encode(7)
            assert len(plain[0]) == len(throttled[0]), (Api(api), version)
