"""TLS: renewed certificates, keys in settings and files, and settings that cannot be used."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate

from moldau.settings import InvalidSetting
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.broker.net.doors.tls_client import TlsClient, encrypted_key, gets_in
from tests.certificates import (
    HOSTS,
    authority,
    client_context,
    of_broker,
    of_user,
    stranger,
    tls_settings,
)


def test_new_connections_get_a_renewed_certificate_and_old_ones_live_on(tmp_path: Path) -> None:
    settings = tls_settings(tmp_path) | {"ssl.reload.interval.ms": "10"}

    def serial(client: TlsClient) -> object:
        return client.socket.getpeercert()["serialNumber"]

    with Broker(settings) as broker, TlsClient(broker, client_context()) as old:
        before = serial(old)
        (tmp_path / "broker.pem").write_text(authority().issue("broker", HOSTS).pem)

        def is_new() -> bool:
            with TlsClient(broker, client_context()) as client:
                return serial(client) != before

        until(is_new)
        assert old.ask(Api.API_VERSIONS, 0).api_keys


def test_a_broken_renewal_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = tls_settings(tmp_path) | {"ssl.reload.interval.ms": "10"}
    with Broker(settings) as broker:
        (tmp_path / "broker.pem").write_text(of_broker().key + of_user("alice").certificate)
        until(lambda: "keeps its old certificates" in caplog.text)
        assert gets_in(broker)
        until(lambda: "does not belong to the private key" in caplog.text)
        (tmp_path / "broker.pem").write_text(authority().issue("broker", HOSTS).pem)
        with caplog.at_level(logging.INFO, "moldau.broker"):
            until(lambda: "has new certificates" in caplog.text)
        assert gets_in(broker)


def test_a_renewed_truststore_counts_for_new_clients(tmp_path: Path) -> None:
    settings = tls_settings(tmp_path) | {
        "ssl.reload.interval.ms": "10",
        "ssl.client.auth": "required",
    }
    context = client_context(stranger().issue("foreign"), tmp_path)
    with Broker(settings) as broker:

        def gets_in() -> bool:
            try:
                with TlsClient(broker, context) as client:
                    return bool(client.ask(Api.API_VERSIONS, 0).api_keys)
            except OSError:
                return False

        assert not gets_in()
        (tmp_path / "authority.pem").write_text(stranger().certificate)
        until(gets_in)


def test_a_key_may_stand_in_the_settings_or_in_pkcs12(tmp_path: Path) -> None:
    issued = of_broker()
    key = load_pem_private_key(issued.key.encode(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    store = serialize_key_and_certificates(
        b"broker",
        key,
        load_pem_x509_certificate(issued.certificate.encode()),
        None,
        BestAvailableEncryption(b"of the store"),
    )
    (tmp_path / "broker.p12").write_bytes(store)
    inline = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.certificate.chain": issued.certificate,
    }
    files = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": f"{tmp_path}/broker.p12"}
    for settings in (
        inline | {"ssl.keystore.key": issued.key.replace("\n", "\\n")},
        inline | {"ssl.keystore.key": encrypted_key(), "ssl.key.password": "of the key"},
        files | {"ssl.keystore.type": "PKCS12", "ssl.keystore.password": "of the store"},
    ):
        with Broker(settings) as broker:
            assert gets_in(broker)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "ssl.keystore.location: a TLS listener needs"),
        ({"ssl.keystore.location": "{folder}/none.pem"}, "could not be read: No such file"),
        (
            {"ssl.keystore.location": "{folder}/a.jks"},
            "keytool -importkeystore -srckeystore .*a.jks",
        ),
        ({"ssl.keystore.location": "{folder}/a.p12"}, "is not PKCS12, or the password is wrong"),
        ({"ssl.keystore.location": "{folder}/a.txt", "ssl.keystore.type": "PEM"}, "is not PEM"),
        ({"ssl.keystore.location": "{folder}/authority.pem"}, "it contains no private key"),
        ({"ssl.keystore.location": "{folder}/secret.pem"}, "ssl.key.password does not decrypt it"),
        ({"ssl.client.auth": "required"}, "needs the authorities that sign client certificates"),
        ({"ssl.principal.mapping.rules": "RULE:("}, "cannot parse a rule"),
        ({"listener.name.ssl.ssl.client.auth": "maybe"}, "must be one of"),
        ({"listener.name.other.ssl.client.auth": "none"}, "there is no listener other, only ssl"),
        ({"listener.name.ssl.ssl.client.aut": "none"}, "did you mean listener.name.ssl.ssl.client"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_at_the_start(
    tmp_path: Path, settings: dict[str, str], reason: str
) -> None:
    (tmp_path / "a.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (tmp_path / "a.p12").write_bytes(b"no store")
    (tmp_path / "a.txt").write_bytes(b"no PEM")
    (tmp_path / "authority.pem").write_text(authority().certificate)
    (tmp_path / "broker.pem").write_text(of_broker().pem)
    (tmp_path / "secret.pem").write_text(encrypted_key() + of_broker().certificate)
    own = (
        {}
        if "needs" in reason and "TLS" in reason
        else {"ssl.keystore.location": "{folder}/broker.pem"}
    )
    given = {key: text.format(folder=tmp_path) for key, text in {**own, **settings}.items()}
    with pytest.raises(InvalidSetting, match=reason):
        Broker({"listeners": "SSL://127.0.0.1:0", **given}).start()
