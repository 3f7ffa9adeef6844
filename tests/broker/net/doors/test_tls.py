"""TLS listeners: who gets in with which certificate, renewal, and what goes wrong."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

import pytest

from moldau.security.authority import Issued
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.broker.net.doors.tls_client import TlsClient, encrypted_key, gets_in
from tests.broker.wire_client import Client, fetch_values, inside, make_batch
from tests.certificates import (
    HOSTS,
    authority,
    client_context,
    of_broker,
    of_user,
    stranger,
    tls_settings,
)

WITHIN_S = 60.0


def principals(broker: Broker) -> list[str]:
    return inside(
        broker, lambda server: [str(each.context.principal) for each in server.connections]
    )


def number_of(broker: Broker) -> int:
    return inside(broker, lambda server: len(server.connections))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_records_go_in_and_come_out(tmp_path: Path, version: ssl.TLSVersion) -> None:
    context = client_context()
    context.minimum_version = context.maximum_version = version
    with Broker(tls_settings(tmp_path)) as broker, TlsClient(broker, context) as client:
        topic = client.create()
        big = b"x" * 900_000
        for _ in range(4):
            assert client.produce(topic, make_batch(big)).error_code == 0
        assert client.values(topic) == [big] * 4
        assert client.socket.version() == {771: "TLSv1.2", 772: "TLSv1.3"}[version]


def test_many_large_answers_wait_for_a_client_that_reads_late(tmp_path: Path) -> None:
    with Broker(tls_settings(tmp_path)) as broker, TlsClient(broker, client_context()) as client:
        topic = client.create()
        for _ in range(4):
            client.produce(topic, make_batch(bytes(900_000)))
        wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 4 << 20}
        for _ in range(5):
            client.send(Api.FETCH, 12, **fetch_values({topic: [wanted]}))
        # The broker must serve others while this one does not read.
        with TlsClient(broker, client_context()) as other:
            assert other.ask(Api.METADATA, topics=[]).brokers
        sizes = [len(client.receive().responses[0].partitions[0].records) for _ in range(5)]
        assert sizes == [sizes[0]] * 5
        assert sizes[0] > 3_600_000


def test_the_certificate_says_who_a_client_is(tmp_path: Path) -> None:
    settings = tls_settings(tmp_path) | {"ssl.client.auth": "required"}
    rules = {"ssl.principal.mapping.rules": r"RULE:^CN=([a-z]+)\..*$/$1-of-rule/U,DEFAULT"}
    with Broker(settings | rules) as broker:
        for name, user in (("alice", "CN=alice"), ("bob.example", "BOB-OF-RULE")):
            context = client_context(of_user(name), tmp_path)
            with TlsClient(broker, context) as client:
                client.ask(Api.API_VERSIONS)
                assert principals(broker) == [f"User:{user}"]
            until(lambda: not number_of(broker))


def test_a_certificate_may_be_left_out_where_it_is_only_requested(tmp_path: Path) -> None:
    settings = tls_settings(tmp_path) | {"ssl.client.auth": "requested"}
    with Broker(settings) as broker, TlsClient(broker, client_context()) as client:
        client.ask(Api.API_VERSIONS)
        assert principals(broker) == ["User:ANONYMOUS"]


@pytest.mark.parametrize(
    ("issued", "reason"),
    [
        (None, "sent no certificate"),
        (authority().issue("late", days=-1), "certificate has expired"),
        (stranger().issue("foreign"), "certificate was rejected"),
    ],
    ids=["none", "expired", "foreign"],
)
def test_who_has_no_good_certificate_gets_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, issued: Issued | None, reason: str
) -> None:
    settings = tls_settings(tmp_path) | {"ssl.client.auth": "required"}
    with Broker(settings) as broker:
        # With TLS 1.3 a client hears of the refusal when it first reads.
        with (
            pytest.raises((ssl.SSLError, ConnectionError)),
            TlsClient(broker, client_context(issued, tmp_path)) as client,
        ):
            client.ask(Api.API_VERSIONS)
        until(lambda: reason in caplog.text, reason)
        assert not number_of(broker)


def test_who_no_rule_names_gets_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = tls_settings(tmp_path) | {
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=bob$/bob/",
    }
    context = client_context(of_user("alice"), tmp_path)
    with Broker(settings) as broker, TlsClient(broker, context) as client:
        assert client.is_closed()
        said = "no rule of ssl.principal.mapping.rules matches 'CN=alice'"
        until(lambda: said in caplog.text)


@pytest.mark.parametrize(
    ("issued", "reason"),
    [
        (authority().issue("broker", HOSTS, days=-1), "expired"),
        (stranger().issue("broker", HOSTS), "verify failed"),
        (authority().issue("broker", ["elsewhere.example"]), "IP address mismatch"),
    ],
    ids=["expired", "foreign", "wrong host"],
)
def test_a_client_sees_what_is_wrong_with_the_brokers_certificate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, issued: Issued, reason: str
) -> None:
    with Broker(tls_settings(tmp_path, issued)) as broker:
        with pytest.raises(ssl.SSLCertVerificationError, match=reason):
            TlsClient(broker, client_context())
        until(lambda: "the TLS handshake failed" in caplog.text)


def test_who_speaks_no_tls_is_told_so_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(tls_settings(tmp_path)) as broker, Client((broker.host, broker.port)) as client:
        client.send(Api.API_VERSIONS)
        assert client.is_closed()
        until(lambda: "does not speak TLS" in caplog.text)


def test_tls_at_a_plain_listener_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with Broker() as broker:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            TlsClient(broker, client_context())
        until(lambda: "speaks TLS" in caplog.text)


def test_a_handshake_that_does_not_come_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = tls_settings(tmp_path) | {"connection.authentication.timeout.ms": "100"}
    with Broker(settings) as broker, Client((broker.host, broker.port)) as client:
        assert client.is_closed()
        until(lambda: "took too long" in caplog.text)


def test_handshakes_count_as_connections(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = tls_settings(tmp_path) | {"max.connections": "3"}
    with Broker(settings) as broker, ExitStack() as stack:
        address = (broker.host, broker.port)
        inside_already = [
            stack.enter_context(TlsClient(broker, client_context())) for _ in range(2)
        ]
        until(lambda: number_of(broker) == 2)
        silent = stack.enter_context(socket.create_connection(address, WITHIN_S))
        # It takes the only place that is left from the one whose handshake does not end.
        inside_already.append(stack.enter_context(TlsClient(broker, client_context())))
        silent.settimeout(WITHIN_S)
        assert silent.recv(1) == b""
        until(lambda: number_of(broker) == 3)
        with Client(address) as client:
            assert client.is_closed()
            until(lambda: "max.connections" in caplog.text)
        assert number_of(broker) == 3
        inside_already.pop().close()
        until(lambda: gets_in(broker))


def test_a_stopping_broker_does_not_wait_for_clients_that_never_close(tmp_path: Path) -> None:
    with Broker(tls_settings(tmp_path)) as broker:
        client = TlsClient(broker, client_context())
        client.ask(Api.API_VERSIONS)
    # Over by then, although nobody read the broker's close_notify.
    client.close()


def test_confluent_kafka_gets_in(tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient

    settings = tls_settings(tmp_path) | {"ssl.client.auth": "required"}
    with Broker(settings) as broker:
        admin = AdminClient(
            {
                "bootstrap.servers": broker.bootstrap,
                "security.protocol": "SSL",
                "ssl.ca.pem": authority().certificate,
                "ssl.certificate.pem": of_user("alice").certificate,
                "ssl.key.pem": of_user("alice").key,
            }
        )
        assert admin.list_topics(timeout=WITHIN_S).brokers
        # It may change from the address that it was given to the one that it was told.
        until(lambda: "User:CN=alice" in principals(broker))


def test_secrets_are_not_in_the_description_of_a_broker(tmp_path: Path) -> None:
    settings = tls_settings(tmp_path)
    del settings["ssl.keystore.location"]
    issued = of_broker()
    settings |= {
        "ssl.keystore.key": encrypted_key(),
        "ssl.keystore.certificate.chain": issued.certificate,
        "ssl.key.password": "of the key",
    }
    with Broker(settings) as broker, TlsClient(broker, client_context()) as client:
        resource = {"resource_type": 4, "resource_name": "0", "configuration_keys": None}
        answer = client.ask(Api.DESCRIBE_CONFIGS, resources=[resource], include_synonyms=True)
        shown = {each.name: each for each in answer.results[0].configs}
        for name in ("ssl.keystore.key", "ssl.key.password"):
            assert shown[name].is_sensitive
            assert shown[name].value is None
        assert "of the key" not in str(answer)
        assert "PRIVATE" not in str(answer)
        assert "of the key" not in repr(inside(broker, lambda server: server.settings))


def test_other_clients_get_in_by_their_certificates(tmp_path: Path) -> None:
    from aiokafka.admin import AIOKafkaAdminClient
    from kafka import KafkaAdminClient

    settings = tls_settings(tmp_path) | {"ssl.client.auth": "required"}
    own = tmp_path / "alice.pem"
    own.write_text(of_user("alice").pem)
    with Broker(settings) as broker:
        admin = KafkaAdminClient(
            bootstrap_servers=broker.bootstrap,
            security_protocol="SSL",
            ssl_cafile=str(tmp_path / "authority.pem"),
            ssl_certfile=str(own),
            ssl_keyfile=str(own),
        )
        assert isinstance(admin.list_topics(), list)
        admin.close()

        async def ask() -> object:
            client = AIOKafkaAdminClient(
                bootstrap_servers=broker.bootstrap,
                security_protocol="SSL",
                ssl_context=client_context(of_user("alice"), tmp_path),
            )
            await client.start()
            try:
                return await client.list_topics()
            finally:
                await client.close()

        assert isinstance(asyncio.run(ask()), list)
