"""Authentication by SASL: who gets in, what others get, and how little before that."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from struct import pack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scramp import ScramClient

from moldau.settings import InvalidSetting
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.api.cluster.sasl import (
    BASE,
    SCRAMS,
    authenticate,
    connect,
    handshake,
    principals,
)
from tests.broker.wire_client import Client, inside


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(BASE) as broker:
        yield broker


def log_in(client: Client, user: str, password: str, mechanism: str = "PLAIN") -> Any:
    """The last answer."""
    assert handshake(client, mechanism).error_code == 0
    if mechanism == "PLAIN":
        return authenticate(client, f"\0{user}\0{password}".encode())
    scram = ScramClient([mechanism], user, password)
    first = authenticate(client, scram.get_client_first().encode())
    assert first.error_code == 0, first
    scram.set_server_first(bytes(first.auth_bytes).decode())
    final = authenticate(client, scram.get_client_final().encode())
    if final.error_code == 0:
        scram.set_server_final(bytes(final.auth_bytes).decode())
    return final


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS])
def test_who_knows_the_password_gets_in(broker: Broker, mechanism: str) -> None:
    with connect(broker) as client:
        assert log_in(client, "alice", "wonder land", mechanism).error_code == 0
        assert client.ask(Api.METADATA, topics=None).brokers
        assert "User:alice" in principals(broker)


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS])
def test_a_wrong_password_and_an_unknown_user_get_the_same_answer(
    broker: Broker, caplog: pytest.LogCaptureFixture, mechanism: str
) -> None:
    answers = []
    for user in ("alice", "nobody"):
        with connect(broker) as client:
            answer = log_in(client, user, "wrong password", mechanism)
            answers.append((answer.error_code, answer.error_message, answer.auth_bytes))
            assert client.is_closed()
    assert answers[0] == answers[1]
    assert answers[0][0] == Error.SASL_AUTHENTICATION_FAILED
    assert "wrong password" not in caplog.text.replace("gave a wrong password", "")
    assert "wonder land" not in caplog.text


def test_an_unknown_user_always_gets_the_same_salt(broker: Broker) -> None:
    salts = set()
    for _ in range(2):
        with connect(broker) as client:
            handshake(client, "SCRAM-SHA-256")
            scram = ScramClient(["SCRAM-SHA-256"], "nobody", "x")
            answer = authenticate(client, scram.get_client_first().encode())
            salts.add(bytes(answer.auth_bytes).split(b",")[1])
    assert len(salts) == 1


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(broker: Broker) -> None:
    with connect(broker) as client:
        answer = handshake(client, "GSSAPI")
        assert answer.error_code == Error.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ("PLAIN", *SCRAMS)
        assert client.is_closed()


def test_messages_may_be_bare_after_a_handshake_of_version_0(broker: Broker) -> None:
    with connect(broker) as client:
        assert handshake(client, "PLAIN", 0).error_code == 0
        client.send_bytes(pack(">i", 18) + b"\0alice\0wonder land")
        assert client.receive_frame() == b""
        assert client.ask(Api.METADATA, topics=None).brokers
    with connect(broker) as client:
        assert handshake(client, "PLAIN", 0).error_code == 0
        client.send_bytes(pack(">i", 8) + b"\0alice\0x")
        assert client.is_closed()


def test_what_follows_in_the_same_packet_is_answered(broker: Broker) -> None:
    with connect(broker) as client:
        frames = client.frame(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        frames += client.frame(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0bob\0b")
        client.send_bytes(frames + client.frame(Api.METADATA, topics=None))
        assert client.receive().error_code == 0
        assert client.receive().error_code == 0
        assert client.receive().brokers


@pytest.mark.parametrize(
    "api", [api for api in Api if api not in (Api.API_VERSIONS, Api.SASL_HANDSHAKE)]
)
def test_nothing_else_is_answered_before(broker: Broker, api: Api) -> None:
    with connect(broker) as client:
        assert client.ask(Api.API_VERSIONS, 0).api_keys
        client.send_bytes(pack(">ihhih", 10, api, 0, 1, -1))
        assert client.is_closed()
        # And not between the handshake and its end.
        with connect(broker) as other:
            handshake(other, "PLAIN")
            if api != Api.SASL_AUTHENTICATE:
                other.send_bytes(pack(">ihhih", 10, api, 0, 1, -1))
                assert other.is_closed()


def test_an_oversized_frame_ends_the_connection_at_once(broker: Broker) -> None:
    with connect(broker) as client:
        client.send_bytes(pack(">i", (64 << 10) + 1))
        assert client.is_closed()
    with connect(broker) as client:
        assert log_in(client, "alice", "wonder land").error_code == 0
        client.send_bytes(client.frame(Api.METADATA, topics=[{"name": "x" * 20_000}] * 4))
        assert client.receive().brokers


def test_who_asks_for_versions_for_ever_is_not_listened_to(broker: Broker) -> None:
    with connect(broker) as client:
        client.send_bytes(pack(">ihhih", 10, Api.API_VERSIONS, 0, 1, -1) * 100)
        assert client.is_closed()


def test_who_takes_too_long_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    drip = {"connection.authentication.timeout.ms": "150"}
    with Broker(BASE | drip) as broker, connect(broker) as client, connect(broker) as silent:
        until(lambda: not _takes_a_byte(client), "the end of who drips")
        assert silent.is_closed()
        until(lambda: "did not authenticate within 0.15 s" in caplog.text)
        until(lambda: _stays(broker), "somebody who is quick enough")


def _stays(broker: Broker) -> bool:
    """Whether a client that gets in is still served when its time would be over."""
    with connect(broker) as client:
        try:
            assert log_in(client, "alice", "wonder land").error_code == 0
        except ConnectionError:
            return False
        time.sleep(0.3)
        return bool(client.ask(Api.METADATA, topics=None).brokers)


def _takes_a_byte(client: Client) -> bool:
    try:
        client.send_bytes(b"\0")
    except OSError:
        return False
    return True


@pytest.mark.parametrize("many", [500, pytest.param(3000, marks=pytest.mark.slow)])
def test_others_notice_nothing_of_many_that_do_not_authenticate(broker: Broker, many: int) -> None:
    with connect(broker) as client:
        assert log_in(client, "alice", "wonder land").error_code == 0
        crowd = [socket.create_connection((broker.host, broker.port)) for _ in range(many)]
        try:
            for number, each in enumerate(crowd):
                each.sendall((pack(">i", 1000) + bytes(900))[: number % 900])
            assert client.ask(Api.METADATA, topics=None).brokers
            with connect(broker) as late:
                assert log_in(late, "bob", "b").error_code == 0
        finally:
            for each in crowd:
                each.close()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from(["PLAIN", *SCRAMS, "?"]),
    st.integers(0, 2),
    st.lists(st.binary(max_size=60) | st.text("n,=raliceb0\0\x01", max_size=30), max_size=3),
)
def test_nonsense_never_gets_in(
    broker: Broker, mechanism: str, version: int, messages: list[bytes | str]
) -> None:
    with connect(broker) as client:
        try:
            handshake(client, mechanism)
            for each in messages:
                answer = authenticate(client, each.encode() if isinstance(each, str) else each)
                assert answer.error_code or not _is_in(answer)
            client.send(Api.METADATA, topics=None)
            assert client.is_closed()
        except OSError:
            pass


def _is_in(answer: Any) -> bool:
    return bool(answer.auth_bytes.startswith(b"v=")) or answer.auth_bytes == b""


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from([Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE]),
    st.integers(-1, 5),
    st.binary(max_size=100),
)
def test_frames_of_nonsense_cost_only_their_sender(
    broker: Broker, api: Api, version: int, body: bytes
) -> None:
    with connect(broker) as client:
        data = pack(">hhih", api, version, 1, -1) + body
        metadata = pack(">ihhih", 10, Api.METADATA, 0, 2, -1)
        client.send_bytes(pack(">i", len(data)) + data + metadata)
        assert client.is_closed()


def test_a_listener_without_sasl_refuses_it(moldau_session_broker: Broker) -> None:
    with connect(moldau_session_broker) as client:
        assert handshake(client, "PLAIN").error_code == Error.ILLEGAL_SASL_STATE
        for version in (0, 1, 2):
            answer = authenticate(client, b"\0a\0b", version)
            assert answer.error_code == Error.ILLEGAL_SASL_STATE


def test_a_session_that_ends_has_to_be_renewed() -> None:
    short = {"connections.max.reauth.ms": "1000"}
    with Broker(BASE | short) as broker, connect(broker) as client:
        assert log_in(client, "alice", "wonder land").session_lifetime == _ms(1000)
        # Again before the end, and again after it.
        assert log_in(client, "alice", "wonder land").error_code == 0
        assert client.ask(Api.METADATA, topics=None).brokers
        _until_expired(broker)
        assert log_in(client, "alice", "wonder land").error_code == 0
        assert client.ask(Api.METADATA, topics=None).brokers
        _until_expired(broker)
        client.send(Api.METADATA, topics=None)
        assert client.is_closed()


def _ms(number: int) -> Any:
    import datetime

    return datetime.timedelta(milliseconds=number)


def _until_expired(broker: Broker) -> None:
    def phases() -> set[str]:
        return inside(
            broker,
            lambda server: {each.login.authentication.phase.name for each in server.connections},  # type: ignore[union-attr]
        )

    until(lambda: phases() == {"EXPIRED"})


def test_nobody_becomes_another_by_authenticating_again(broker: Broker) -> None:
    with connect(broker) as client:
        assert log_in(client, "alice", "wonder land").error_code == 0
        answer = log_in(client, "bob", "b")
        assert answer.error_code == Error.SASL_AUTHENTICATION_FAILED
        assert "Cannot change principals" in answer.error_message
        assert client.is_closed()
    with connect(broker) as client:
        assert log_in(client, "alice", "wonder land").error_code == 0
        answer = handshake(client, "SCRAM-SHA-256")
        assert answer.error_code == Error.UNSUPPORTED_SASL_MECHANISM


def test_users_of_the_cluster_get_in_by_scram(broker: Broker) -> None:
    from moldau.broker.security.sasl.scram import credential_of
    from moldau.cluster.state.access import ScramChanged

    credentials = {"SCRAM-SHA-512": credential_of("SCRAM-SHA-512", "of carol")}

    async def add() -> None:
        assert broker._server is not None
        await broker._server.store.commit([ScramChanged("carol", credentials)])

    broker._call(add())
    with connect(broker) as client:
        assert log_in(client, "carol", "of carol", "SCRAM-SHA-512").error_code == 0
    with connect(broker) as client:
        assert log_in(client, "carol", "of carol", "SCRAM-SHA-256").error_code != 0


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"sasl.enabled.mechanisms": ""}, "needs at least one mechanism"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "must be one of: PLAIN"),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": 'A required user_a="secret"'},
            "final semicolon after user_a",
        ),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": 'B required user_a="secret";'},
            "PLAIN needs PlainLoginModule, not B",
        ),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": "PlainLoginModule required;"},
            "PLAIN needs users",
        ),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "sasl.oauthbearer.jwks.endpoint.url"),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "file:///none",
            },
            "sasl.oauthbearer.expected.issuer",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused_at_the_start(
    more: dict[str, str], reason: str
) -> None:
    with pytest.raises(InvalidSetting, match=reason) as refused:
        Broker(BASE | more).start()
    assert "secret" not in str(refused.value)


def test_no_password_is_in_the_description_of_a_broker(broker: Broker) -> None:
    with connect(broker) as client:
        log_in(client, "alice", "wonder land")
        resource = {"resource_type": 4, "resource_name": "0", "configuration_keys": None}
        answer = client.ask(Api.DESCRIBE_CONFIGS, resources=[resource], include_synonyms=True)
        assert "wonder land" not in str(answer)
