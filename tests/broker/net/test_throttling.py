"""Throttled clients: answered at once, told how long to wait, and not read from meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from moldau.broker.settings.access import STANDARD_AUTHORIZER
from moldau.cluster.state.access import QuotasChanged
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.api.sharing.member import Member, acquired, initialize
from tests.broker.net.doors.tls_client import TlsClient
from tests.broker.net.test_timed import busy
from tests.broker.principals import codes
from tests.broker.wire_client import PATIENCE_S, Client, fresh_name, inside, make_batch
from tests.certificates import client_context, tls_settings


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker) as client:
        yield client


def limit(client: Client, kind: str = "user", name: str | None = None, **limits: float) -> None:
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name}],
        "ops": [{"key": key, "value": value, "remove": False} for key, value in limits.items()],
    }
    answer = client.ask(Api.ALTER_CLIENT_QUOTAS, entries=[entry], validate_only=False)
    assert codes(answer) == {0}


def create(client: Client, partitions: int = 1) -> str:
    name = fresh_name("throttled")
    wanted = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    assert codes(client.ask(Api.CREATE_TOPICS, topics=[wanted])) == {0}
    return name


def produce(topic: str, size: int = 20_000, acks: int = 1) -> dict[str, Any]:
    partition = {"index": 0, "records": bytes(make_batch(bytes(size)))}
    return {
        "acks": acks,
        "timeout": 1000,
        "topic_data": [{"name": topic, "partition_data": [partition]}],
    }


def fetch(topic: str, **changed: Any) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    return {
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
    } | changed


def wait_ms(answer: Any) -> float:
    return float(answer.throttle_time.total_seconds()) * 1000


def is_muted(broker: Broker, client: Client) -> bool:
    port = client.socket.getsockname()[1]
    return inside(
        broker,
        lambda server: any(
            each._reading.blocked & 32
            for each in server.connections
            if each.context.client_port == port
        ),
    )


@pytest.mark.parametrize("version", [3, 12])
def test_a_producer_above_its_rate_is_answered_at_once_and_then_not_read_from(
    broker: Broker, client: Client, version: int
) -> None:
    topic = create(client)
    limit(client, producer_byte_rate=1000)
    answer = client.ask(Api.PRODUCE, version, **produce(topic))
    assert codes(answer) == {0}
    # 20 kB are ten seconds more than ten windows of 1 kB.
    assert 9_000 < wait_ms(answer) < 12_000
    assert is_muted(broker, client)
    client.send(Api.API_VERSIONS, 0)
    client.expect_nothing()
    # Others are served.
    with Client(broker) as other:
        assert codes(other.ask(Api.LIST_GROUPS)) == {0}


def test_a_producer_that_wants_no_answers_is_not_read_from_either(
    broker: Broker, client: Client
) -> None:
    topic = create(client)
    limit(client, producer_byte_rate=1000)
    client.send(Api.PRODUCE, 12, **produce(topic, acks=0))
    until(lambda: is_muted(broker, client))


def test_a_muted_client_is_read_from_again_when_its_time_is_over(client: Client) -> None:
    topic = create(client)
    limit(client, producer_byte_rate=1000)
    began = time.monotonic()
    answer = client.ask(Api.PRODUCE, 12, **produce(topic, size=10_100))
    waited = wait_ms(answer) / 1000
    assert 0 < waited < 1
    assert codes(client.ask(Api.LIST_GROUPS)) == {0}
    assert time.monotonic() - began >= waited


def test_a_consumer_above_its_rate_gets_an_empty_answer_and_keeps_its_session(
    broker: Broker, client: Client
) -> None:
    topic = create(client)
    client.ask(Api.PRODUCE, 12, **produce(topic))
    first = client.ask(Api.FETCH, 12, **fetch(topic, session_epoch=0))
    assert first.responses[0].partitions[0].records
    with Client(broker) as admin:
        limit(admin, consumer_byte_rate=1000)
    answer = client.ask(Api.FETCH, 12, **fetch(topic, session_id=first.session_id, session_epoch=1))
    assert (answer.responses, answer.session_id) == ((), first.session_id)
    assert wait_ms(answer) > 0
    # In the first answer of a session a client expects all partitions, or no session.
    with Client(broker) as other:
        answer = other.ask(Api.FETCH, 12, **fetch(topic, session_epoch=0))
        assert (answer.responses, answer.session_id) == ((), 0)
        assert wait_ms(answer) > 0


def test_who_takes_too_much_time_waits_in_answers_of_any_kind(
    broker: Broker, client: Client
) -> None:
    limit(client, request_percentage=0.000001)
    with Client(broker) as other:
        other.ask(Api.LIST_GROUPS)
    for api, version in (
        (Api.API_VERSIONS, 1),
        (Api.API_VERSIONS, 3),
        (Api.METADATA, 9),
        (Api.METADATA, 9),
        (Api.LIST_GROUPS, None),
    ):
        values: dict[str, Any] = {}
        if api is Api.API_VERSIONS:
            values = {"client_software_name": "test", "client_software_version": "1"}
        # The last one is not read from for a second.
        with Client(broker) as another:
            answer = another.ask(api, version, **values)
        assert 0 < wait_ms(answer) <= 1000, api
        if api is Api.API_VERSIONS:
            assert any(each.api_key == Api.METADATA for each in answer.api_keys)
        if api is Api.METADATA:
            assert answer.cluster_id


def test_the_time_of_answers_that_come_later_counts(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.ask(Api.DESCRIBE_CONFIGS, resources=[])
    limit(client, request_percentage=4.0)

    async def take_long() -> dict[str, Any]:
        await asyncio.sleep(0)
        busy(0.8)
        return {"results": []}

    def slow(server: Any) -> None:
        apis = server.entrance._apis
        changed = replace(apis[Api.DESCRIBE_CONFIGS], handler=lambda *_: take_long(), rights=())
        monkeypatch.setitem(apis, Api.DESCRIBE_CONFIGS, changed)

    inside(broker, slow)
    with Client(broker) as other:
        assert wait_ms(other.ask(Api.DESCRIBE_CONFIGS, resources=[])) > 0


def test_fetches_of_followers_are_not_limited(broker: Broker, client: Client) -> None:
    topic = create(client)
    client.ask(Api.PRODUCE, 9, **produce(topic))
    limit(client, request_percentage=0.000001, consumer_byte_rate=1.0)
    with Client(broker) as stranger:
        # There is no such broker.
        strange = fetch(topic, replica_id=77)
        stranger.ask(Api.FETCH, 12, **strange)
        assert wait_ms(stranger.ask(Api.FETCH, 12, **strange)) > 0
    with Client(broker) as follower:
        for _ in range(5):
            answer = follower.ask(Api.FETCH, 12, **fetch(topic, replica_id=0))
            assert wait_ms(answer) == 0
            assert not is_muted(broker, follower)
    with Client(broker) as consumer:
        answer = consumer.ask(Api.FETCH, 12, **fetch(topic))
        assert wait_ms(answer) > 0


def test_who_may_not_act_for_the_cluster_is_no_follower() -> None:
    given = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "allow.everyone.if.no.acl.found": "false",
    }
    with Broker(given) as broker, Client(broker) as client:
        quotas = QuotasChanged((("user", None),), {"request_percentage": 0.000001})
        inside(broker, lambda server: server.state.access.apply(quotas))
        inside(broker, lambda server: server.throttling.apply([quotas]))
        client.ask(Api.FETCH, 12, **fetch("t", replica_id=0))
        answer = client.ask(Api.FETCH, 12, **fetch("t", replica_id=0))
        assert Error.TOPIC_AUTHORIZATION_FAILED in codes(answer)
        assert wait_ms(answer) > 0


def test_changes_to_the_cluster_have_a_rate(client: Client) -> None:
    limit(client, controller_mutation_rate=1)
    wanted = [
        {"name": fresh_name("many"), "num_partitions": 20, "replication_factor": 1}
        for _ in range(2)
    ]
    answer = client.ask(Api.CREATE_TOPICS, topics=wanted)
    assert [each.error_code for each in answer.topics] == [0, Error.THROTTLING_QUOTA_EXCEEDED]
    assert 0 < wait_ms(answer) < 10_000


def test_topics_that_are_created_by_asking_for_them_count_as_changes(client: Client) -> None:
    limit(client, controller_mutation_rate=1)
    names = [{"name": fresh_name("asked-for")} for _ in range(30)]
    answer = client.ask(Api.METADATA, topics=names, allow_auto_topic_creation=True)
    found = [each.error_code for each in answer.topics]
    assert set(found) == {0, Error.UNKNOWN_TOPIC_OR_PARTITION}
    assert found.count(0) < 15
    assert wait_ms(answer) > 0


def test_connections_of_one_address_are_bounded() -> None:
    with Broker({"max.connections.per.ip": 2}) as broker:
        with Client(broker) as one, Client(broker) as two:
            for client in (one, two):
                assert codes(client.ask(Api.LIST_GROUPS)) == {0}
            with Client(broker) as three:
                until(three.is_closed)
        until(lambda: inside(broker, lambda server: len(server.connections)) == 0)
        with Client(broker) as again:
            assert codes(again.ask(Api.LIST_GROUPS)) == {0}
    with (
        Broker(
            {"max.connections.per.ip": 0, "max.connections.per.ip.overrides": "127.0.0.1:1"}
        ) as broker,
        Client(broker) as one,
        Client(broker) as two,
    ):
        assert codes(one.ask(Api.LIST_GROUPS)) == {0}
        until(two.is_closed)


def test_handshakes_of_one_address_are_bounded(tmp_path: Path) -> None:
    given = tls_settings(tmp_path) | {"max.connections.per.ip": "3"}
    with Broker(given) as broker, TlsClient(broker, client_context()) as inside_already:
        # They say nothing, so that their handshakes never end.
        with Client(broker) as one, Client(broker) as two, Client(broker) as three:
            assert three.is_closed()
            assert codes(inside_already.ask(Api.LIST_GROUPS)) == {0}
            for silent in (one, two):
                silent.socket.setblocking(False)
                with pytest.raises(BlockingIOError):
                    silent.socket.recv(1)
        # Whoever comes after them finds room, up to the limit.
        acceptor: Any = inside(broker, lambda server: server.listeners[0].acceptor)
        until(lambda: not acceptor._coming, "the end of the handshakes")
        with TlsClient(broker, client_context()) as one, TlsClient(broker, client_context()) as two:
            for client in (one, two):
                assert codes(client.ask(Api.LIST_GROUPS)) == {0}


def test_a_member_of_a_share_group_above_the_rate_of_consumers_has_to_wait(
    broker: Broker, client: Client
) -> None:
    topic = create(client)
    client.ask(Api.PRODUCE, 12, **produce(topic))
    topic_id = inside(broker, lambda server: server.state.topics[topic].id)
    initialize(client, "g", topic_id)
    with Client(broker) as admin, Member(broker, "g", topic_id) as member:
        limit(admin, consumer_byte_rate=1000)
        answer = member.fetch(wait_ms=10_000)
        # Nobody else is given these records, so that they are not held back.
        assert acquired(answer)
        assert wait_ms(answer) > 9_000
        until(lambda: is_muted(broker, member.client))


def test_new_connections_of_one_address_have_a_rate(broker: Broker, client: Client) -> None:
    limit(client, "ip", "127.0.0.1", connection_creation_rate=1)

    def is_served() -> bool:
        with Client(broker) as other:
            try:
                other.ask(Api.LIST_GROUPS)
            except OSError:
                return False
            return True

    # Ten seconds' worth, and what is added meanwhile; who is refused waits for a window before.
    served = 0
    while is_served():
        served += 1
    assert served >= 10


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_connection_too_many_is_held_back_and_others_are_served(
    tmp_path: Path, protocol: str
) -> None:
    given = tls_settings(tmp_path) | {"listeners": f"{protocol}://127.0.0.1:0"}
    # In a window that long nothing is let go of within a test.
    given |= {"quota.window.size.seconds": "600", "quota.window.num": "1"}
    rare = QuotasChanged((("ip", None),), {"connection_creation_rate": 1 / 600})

    def limit_connections(server: Any) -> None:
        server.state.access.apply(rare)
        server.throttling.apply([rare])

    def held(server: Any) -> int:
        acceptor = server.listeners[0].acceptor
        return len(server.connections) - 1 if acceptor is None else len(acceptor._held)

    with Broker(given) as broker:
        inside(broker, limit_connections)
        first = Client(broker) if protocol == "PLAINTEXT" else TlsClient(broker, client_context())
        with first, Client(broker) as second:
            second.send(Api.API_VERSIONS, 0)
            until(lambda: inside(broker, held) == 1, "the second one")
            assert codes(first.ask(Api.LIST_GROUPS)) == {0}
            second.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                second.socket.recv(1)
            second.socket.settimeout(PATIENCE_S)
            broker.stop()
            assert second.is_closed()


def test_a_connection_too_many_is_closed_when_its_wait_is_over(tmp_path: Path) -> None:
    with Broker(tls_settings(tmp_path) | {"quota.window.num": "1"}) as broker:
        rare = QuotasChanged((("ip", None),), {"connection_creation_rate": 1.0})
        inside(broker, lambda server: server.state.access.apply(rare))
        inside(broker, lambda server: server.throttling.apply([rare]))
        with TlsClient(broker, client_context()), Client(broker) as second:
            assert second.is_closed()


def test_without_limits_nobody_is_asked(broker: Broker, client: Client) -> None:
    def asked() -> tuple[bool, bool]:
        return inside(
            broker,
            lambda server: (
                server.connections.exit.throttle is not None,
                server.connections.exit.spent is not None,
            ),
        )

    assert asked() == (False, False)
    limit(client, producer_byte_rate=1e9)
    assert asked() == (True, False)
    limit(client, request_percentage=1e9)
    assert asked() == (True, True)
