"""Requests in envelopes: who asked comes along, and nobody but a broker is believed."""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from moldau.broker.api import forwarding, registry
from moldau.broker.api.cluster import api_versions
from moldau.broker.api.forwarding import FORWARDED_BY
from moldau.broker.api.registry import DECLARED
from moldau.broker.net.context import Context
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import CLUSTER_NAME, Operation, Resource
from moldau.broker.security.principal import ANONYMOUS, Principal
from moldau.broker.security.standard_authorizer import StandardAuthorizer
from moldau.testing import Broker, Ensemble
from moldau.testing.waiting import until
from moldau.wire.apis import Api, is_flexible
from moldau.wire.errors import Error
from moldau.wire.headers import request_frame
from moldau.wire.messages import decode_response, encode_request
from moldau.wire.primitives import MalformedRequest
from moldau.wire.principal import decode_principal, encode_principal
from tests.broker.asking import Asker

WITHIN_S = 60.0
ALICE = encode_principal("User", "alice")
HERE = ipaddress.ip_address("10.1.2.3").packed
# Creates nothing, and is for the controller only.
API, VERSION = Api.CREATE_PARTITIONS, 3
INSIDE = encode_request(API, VERSION, {"topics": [], "timeout": 1000})


@pytest.fixture(scope="module")
def brokers(ensemble: Ensemble) -> Iterator[list[Broker]]:
    """The controller first, and another."""
    settings = settings_of(ensemble)
    made = [Broker({"node.id": id, **settings}) for id in range(2)]
    try:
        for broker in made:
            broker.start()
        until(lambda: all(len(inside(b).state.brokers) == 2 for b in made), "both are known")
        until(lambda: inside(made[0]).state.controller_id >= 0, "one is the controller")
        controller = inside(made[0]).state.controller_id
        yield [made[controller], made[1 - controller]]
    finally:
        for broker in made:
            broker.stop()


def settings_of(ensemble: Ensemble) -> dict[str, str]:
    return {
        "zookeeper.connect": f"{ensemble.hosts}/envelopes-{uuid.uuid4().hex[:8]}",
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT",
    }


def inside(broker: Broker) -> Any:
    return broker._server


@pytest.fixture
def controller(brokers: list[Broker]) -> Broker:
    return brokers[0]


@pytest.fixture
def other(brokers: list[Broker]) -> Broker:
    return brokers[1]


@pytest.fixture
def seen(controller: Broker, monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The requests that the controller is given to handle."""
    found: list[Request] = []
    registry.take_up(API)
    declared = DECLARED[API]
    handler = declared.handler
    assert handler is not None

    def noting(parts: Any, request: Request) -> Any:
        if parts.node is inside(controller).node:
            found.append(request)
        return handler(parts, request)

    monkeypatch.setitem(DECLARED, API, replace(declared, handler=noting))
    return found


def send(
    broker: Broker | tuple[str, int],
    *,
    api: int = API,
    version: int = VERSION,
    body: bytes = INSIDE,
    data: bytes | None = None,
    principal: bytes | None = ALICE,
    address: bytes = HERE,
) -> Any:
    if data is None:
        data = request_frame(api, version, 77, "admin", body)[4:]
    with Asker(broker) as asker:
        return asker.ask(
            Api.ENVELOPE,
            request_data=data,
            request_principal=principal,
            client_host_address=address,
        )


def test_a_request_comes_with_who_asked_and_from_where(
    controller: Broker, seen: list[Request]
) -> None:
    answer = send(controller)
    assert answer.error_code == Error.NONE
    data = memoryview(answer.response_data)
    assert int.from_bytes(data[:4]) == 77
    assert (
        decode_response(API, VERSION, data[5 if is_flexible(API, VERSION) else 4 :]).results == ()
    )
    [request] = seen
    assert (str(request.context.principal), request.context.client_host) == (
        "User:alice",
        "10.1.2.3",
    )
    assert (request.client_id, request.is_forwarded) == ("admin", True)
    assert not request.context.is_inter_broker


class Authorizer:
    """Allows everything but one operation, and remembers who wanted what."""

    rules = None
    may_remember = False

    def __init__(self, denied: Operation | None = None) -> None:
        self.denied = denied
        self.asked: list[tuple[str, str, Operation, str]] = []

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
        self.asked.append((str(principal), host, operation, name))
        return operation is not self.denied


def test_the_broker_needs_a_right_to_speak_for_others_and_they_need_their_own(
    controller: Broker, seen: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {"name": "none-such", "count": 2, "assignments": None}
    body = encode_request(API, VERSION, {"topics": [wanted], "timeout": 1000})
    authorizer = Authorizer()
    monkeypatch.setattr(inside(controller).entrance, "authorizer", authorizer)
    assert send(controller, body=body).error_code == Error.NONE
    assert authorizer.asked == [
        ("User:ANONYMOUS", "127.0.0.1", Operation.CLUSTER_ACTION, CLUSTER_NAME),
        ("User:alice", "10.1.2.3", Operation.ALTER, "none-such"),
    ]
    assert len(seen) == 1
    authorizer.denied = Operation.ALTER
    answer = send(controller, body=body)
    assert answer.error_code == Error.NONE
    inner = memoryview(answer.response_data)[5 if is_flexible(API, VERSION) else 4 :]
    (result,) = decode_response(API, VERSION, inner).results
    assert result.error_code == Error.TOPIC_AUTHORIZATION_FAILED
    assert len(seen) == 2
    authorizer.denied = Operation.CLUSTER_ACTION
    answer = send(controller, body=body)
    assert (answer.error_code, answer.response_data) == (Error.CLUSTER_AUTHORIZATION_FAILED, None)
    assert len(seen) == 2


def test_an_address_that_comes_mapped_into_ipv6_is_an_ipv4_address(
    controller: Broker, seen: list[Request]
) -> None:
    assert send(controller, address=bytes(10) + b"\xff\xff" + HERE).error_code == Error.NONE
    assert seen[0].context.client_host == "10.1.2.3"


def test_a_broker_passes_on_whom_it_was_asked_by(other: Broker, seen: list[Request]) -> None:
    with Asker(other) as asker:
        assert asker.ask(API, VERSION, topics=[], timeout=1000).results == ()
    [request] = seen
    assert (str(request.context.principal), request.context.client_host) == (
        "User:ANONYMOUS",
        "127.0.0.1",
    )
    assert (request.client_id, request.is_forwarded) == ("test", True)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"api": Api.METADATA, "version": 12}, Error.INVALID_REQUEST),
        ({"api": Api.ENVELOPE, "version": 0}, Error.INVALID_REQUEST),
        ({"version": 99}, Error.UNSUPPORTED_VERSION),
        ({"data": b"no request"}, Error.UNSUPPORTED_VERSION),
        ({"data": b""}, Error.UNSUPPORTED_VERSION),
        ({"body": b"\x7f"}, Error.UNSUPPORTED_VERSION),
        ({"principal": None}, Error.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"principal": ALICE[:-1]}, Error.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"principal": b"\0\1" + ALICE[2:]}, Error.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"address": b"10.1.2.3"}, Error.INVALID_REQUEST),
    ],
)
def test_an_envelope_that_cannot_be_opened_says_so_and_the_connection_stays(
    controller: Broker, seen: list[Request], wrong: dict[str, Any], error: Error
) -> None:
    answer = send(controller, **wrong)
    assert (Error(answer.error_code), answer.response_data) == (error, None)
    assert not seen


def test_what_was_passed_on_already_is_not_passed_on_again(other: Broker) -> None:
    answer = send(other)
    assert (Error(answer.error_code), answer.response_data) == (Error.NOT_CONTROLLER, None)


def test_only_where_brokers_come_in_is_an_envelope_announced_and_taken(
    controller: Broker, seen: list[Request], moldau_broker: Broker
) -> None:
    assert Api.ENVELOPE in announced(controller)
    # A broker alone has nobody who could speak for others.
    assert Api.ENVELOPE not in announced(moldau_broker)
    with pytest.raises(AssertionError, match="closed the connection"):
        send(moldau_broker)
    for_clients = (controller.host, inside(controller).listener("CLIENTS").port)
    assert Api.ENVELOPE not in announced(for_clients)
    with pytest.raises(AssertionError, match="closed the connection"):
        send(for_clients)
    assert not seen


def announced(broker: Broker | tuple[str, int]) -> set[int]:
    with Asker(broker) as asker:
        answer = asker.ask(Api.API_VERSIONS, 2)
    return {int(each.api_key) for each in answer.api_keys}


@pytest.mark.parametrize("id", [0, 1, 5])
def test_a_name_that_anybody_could_send_is_not_believed(
    other: Broker, seen: list[Request], id: int
) -> None:
    with Asker(other) as asker:
        asker.client_id = f"{FORWARDED_BY}{id}"
        assert asker.ask(API, VERSION, topics=[], timeout=1000).results == ()
    assert len(seen) == 1


def test_a_broker_of_an_earlier_version_passes_requests_on_under_its_name(
    other: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = inside(other)
    controller = server.state.controller_id
    earlier = msgspec.structs.replace(server.state.brokers[controller], endpoints=())
    monkeypatch.setitem(server.state.brokers, controller, earlier)

    def passed_on(
        client_id: str, *, is_inter_broker: bool = True, authorizer: Any = None
    ) -> int | None:
        context = Context("PLAINTEXT", "", 0, "", 0, is_inter_broker=is_inter_broker)
        request = Request(API, VERSION, 1, client_id, context, raw=INSIDE)
        request.authorizer = authorizer
        forwarder: int | None = server.forwarding.earlier_forwarder(request)
        return forwarder

    name = f"{FORWARDED_BY}{controller}"
    assert passed_on(name) == controller
    assert passed_on(name, is_inter_broker=False) is None
    # With access control, only who may act for the cluster is believed.
    assert passed_on(name, authorizer=StandardAuthorizer({}, frozenset())) is None
    broker = StandardAuthorizer({}, frozenset({str(ANONYMOUS)}))
    assert passed_on(name, authorizer=broker) == controller
    for wrong in ("", FORWARDED_BY, f"{FORWARDED_BY}x", f" {name}", FORWARDED_BY + "9" * 9000):
        assert passed_on(wrong) is None

    async def relayed() -> object:
        context = Context("PLAINTEXT", "", 0, "", 0, is_inter_broker=True)
        request = Request(API, VERSION, 1, name, context, raw=INSIDE)
        return await server.forwarding.relay(request, lambda *_: b"own", lambda *_: b"refused")

    assert other._call(relayed()) == forwarding.NOT_HERE


def test_a_controller_of_an_earlier_version_is_asked_without_an_envelope(
    other: Broker, seen: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(DECLARED, Api.ENVELOPE)
    api_versions._encode.cache_clear()

    async def hang_up() -> None:
        inside(other).peers.close()

    try:
        other._call(hang_up())
        with Asker(other) as asker:
            assert asker.ask(API, VERSION, topics=[], timeout=1000).results == ()
        [request] = seen
        assert (request.client_id, request.is_forwarded) == (
            f"{FORWARDED_BY}{inside(other).id}",
            False,
        )
    finally:
        api_versions._encode.cache_clear()
        other._call(hang_up())


@given(st.text(max_size=50), st.text(max_size=50))
def test_a_principal_comes_back_as_it_was(kind: str, name: str) -> None:
    data = encode_principal(kind, name)
    assert decode_principal(data) == (kind, name)
    for size in range(len(data)):
        with pytest.raises(MalformedRequest):
            decode_principal(data[:size])


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_a_principal_or_malformed(data: bytes) -> None:
    try:
        decode_principal(data)
    except MalformedRequest:
        pass
