"""Znodes that only the brokers may read and write, and connections to ZooKeeper over TLS."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from moldau.cluster.store import StoreError
from moldau.cluster.zookeeper import ZooKeeperStore
from moldau.cluster.zookeeper.sessions.client import ZooKeeperSecurity
from moldau.local import zookeeper_server
from moldau.local.ports import HOST, free_ports
from moldau.local.zookeeper_server import ZooKeeperServer
from moldau.security.tls_settings import TlsSettings
from moldau.settings import InvalidSetting
from moldau.testing import Broker, Ensemble
from tests.broker.wire_client import Client, inside
from tests.certificates import authority, of_broker, stranger

DIGEST = "brokers:among brokers"


def opened_with(connect: str, security: ZooKeeperSecurity, within_ms: int = 15_000) -> None:
    async def work() -> None:
        store = ZooKeeperStore(connect, 1, connection_timeout_ms=within_ms, security=security)
        try:
            await store.open()
        finally:
            await store.close()

    asyncio.run(work())


def every_node(client: KazooClient, path: str) -> Iterator[str]:
    yield path
    for name in client.get_children(path):
        yield from every_node(client, f"{path}/{name}")


def test_only_who_knows_the_password_reads_and_writes(ensemble: Ensemble) -> None:
    chroot = f"/locked-{uuid.uuid4().hex[:8]}"
    opened_with(f"{ensemble.hosts}{chroot}", ZooKeeperSecurity(DIGEST, sets_acl=True))
    insider = KazooClient(ensemble.hosts, auth_data=[("digest", DIGEST)])
    outsider = KazooClient(ensemble.hosts, auth_data=[("digest", "brokers:a guess")])
    insider.start()
    outsider.start()
    try:
        nodes = list(every_node(insider, chroot))
        assert len(nodes) > 3
        for path in nodes:
            with pytest.raises(NoAuthError):
                outsider.get(path)
            with pytest.raises(NoAuthError):
                outsider.set(path, b"mine")
            with pytest.raises(NoAuthError):
                outsider.create(f"{path}/mine")
    finally:
        for client in (insider, outsider):
            client.stop()
            client.close()
    # Another broker of the cluster gets in, and one with another password does not.
    opened_with(f"{ensemble.hosts}{chroot}", ZooKeeperSecurity(DIGEST, sets_acl=True))
    with pytest.raises(StoreError, match=r"check zookeeper\.digest") as refused:
        opened_with(f"{ensemble.hosts}{chroot}", ZooKeeperSecurity("brokers:a guess"))
    assert "among brokers" not in str(refused.value)


def test_what_was_open_before_is_locked_at_the_next_start(ensemble: Ensemble) -> None:
    chroot = f"/opened-{uuid.uuid4().hex[:8]}"
    opened_with(f"{ensemble.hosts}{chroot}", ZooKeeperSecurity())
    outsider = KazooClient(ensemble.hosts)
    outsider.start()
    try:
        nodes = list(every_node(outsider, chroot))
        # First every broker learns the password, then the nodes are theirs alone.
        opened_with(f"{ensemble.hosts}{chroot}", ZooKeeperSecurity(DIGEST))
        assert outsider.get(f"{chroot}/id")
        opened_with(f"{ensemble.hosts}{chroot}", ZooKeeperSecurity(DIGEST, sets_acl=True))
        for path in nodes:
            with pytest.raises(NoAuthError):
                outsider.get(path)
            if path != chroot:
                with pytest.raises(NoAuthError):
                    outsider.delete(path)
    finally:
        outsider.stop()
        outsider.close()
    opened_with(f"{ensemble.hosts}{chroot}", ZooKeeperSecurity(DIGEST))


def test_the_password_is_not_shown() -> None:
    assert "among" not in repr(ZooKeeperSecurity(DIGEST, True))


@pytest.fixture
def encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A ZooKeeper whose clients have to speak TLS, with a certificate of their own."""
    (port,) = free_ports(1)
    (tmp_path / "server.pem").write_text(of_broker().pem)
    (tmp_path / "authority.pem").write_text(authority().certificate)
    configure = ZooKeeperServer.configure

    def configure_tls(server: ZooKeeperServer, tick_ms: int, members: str) -> None:
        lines = (
            f"secureClientPort={port}",
            f"secureClientPortAddress={HOST}",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"ssl.keyStore.location={tmp_path}/server.pem",
            "ssl.keyStore.type=PEM",
            f"ssl.trustStore.location={tmp_path}/authority.pem",
            "ssl.trustStore.type=PEM",
            "ssl.clientAuth=need",
            "ssl.hostnameVerification=false",
        )
        configure(server, tick_ms, members + "\n".join(lines) + "\n")

    monkeypatch.setattr(zookeeper_server.ZooKeeperServer, "configure", configure_tls)
    with Ensemble(1, tmp_path / "zookeeper"):
        yield f"{HOST}:{port}"


def tls(folder: Path, trusted: str) -> ZooKeeperSecurity:
    path = folder / "trusted.pem"
    path.write_text(trusted)
    return ZooKeeperSecurity(
        tls=TlsSettings(
            ssl_keystore_location=str(folder / "server.pem"), ssl_truststore_location=str(path)
        )
    )


def test_zookeeper_is_spoken_to_over_tls(encrypted: str, tmp_path: Path) -> None:
    opened_with(f"{encrypted}/tls", tls(tmp_path, authority().certificate))
    with pytest.raises(StoreError, match="no ZooKeeper server"):
        opened_with(f"{encrypted}/tls", tls(tmp_path, stranger().certificate), within_ms=1000)
    with pytest.raises(StoreError, match=r"zookeeper\.ssl\.truststore\.location"):
        opened_with(f"{encrypted}/tls", tls(tmp_path, "nonsense"))


JAAS = (
    "org.apache.zookeeper.server.auth.DigestLoginModule required "
    'username="brokers" password="among brokers";'
)


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A ZooKeeper that lets in only who authenticates by SASL."""
    login = tmp_path / "jaas.conf"
    login.write_text(
        "Server { org.apache.zookeeper.server.auth.DigestLoginModule required "
        'user_brokers="among brokers" user_others="of others"; };'
    )
    monkeypatch.setenv("JDK_JAVA_OPTIONS", f"-Djava.security.auth.login.config={login}")
    configure = ZooKeeperServer.configure

    def configure_sasl(server: ZooKeeperServer, tick_ms: int, members: str) -> None:
        lines = (
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "enforce.auth.enabled=true",
            "enforce.auth.schemes=sasl",
        )
        configure(server, tick_ms, members + "\n".join(lines) + "\n")

    monkeypatch.setattr(zookeeper_server.ZooKeeperServer, "configure", configure_sasl)
    with Ensemble(1, tmp_path / "zookeeper") as ensemble:
        yield ensemble.hosts


def by_sasl(user: str, password: str, *, sets_acl: bool = False) -> ZooKeeperSecurity:
    return ZooKeeperSecurity(sets_acl=sets_acl, sasl=(user, password))


def test_brokers_authenticate_to_zookeeper_by_sasl(asking: str, tmp_path: Path) -> None:
    right = by_sasl("brokers", "among brokers", sets_acl=True)
    opened_with(f"{asking}/sasl", right)
    opened_with(f"{asking}/sasl", right)
    # Whoever else the servers know gets in, but not at what belongs to the brokers.
    with pytest.raises(StoreError, match="denied this broker access"):
        opened_with(f"{asking}/sasl", by_sasl("others", "of others"))
    with pytest.raises(StoreError, match=r"check the name and password in") as refused:
        opened_with(f"{asking}/sasl", by_sasl("brokers", "a guess"))
    assert "a guess" not in str(refused.value)
    with pytest.raises(StoreError, match=r"check zookeeper\.digest or\s+zookeeper\.sasl"):
        opened_with(f"{asking}/sasl", ZooKeeperSecurity())


def test_a_whole_broker_authenticates_to_zookeeper_by_sasl(asking: str) -> None:
    settings = {
        "zookeeper.connect": f"{asking}/whole",
        "zookeeper.sasl.jaas.config": JAAS,
        "zookeeper.set.acl": "true",
    }
    with Broker(settings) as broker, Client(broker) as client:
        client.create()
        assert "among brokers" not in str(inside(broker, lambda server: server.settings))


def test_settings_that_do_not_go_together_are_refused() -> None:
    from moldau.broker.settings.broker import BrokerSettings

    with pytest.raises(InvalidSetting, match=r"needs zookeeper\.digest"):
        BrokerSettings.parse({"zookeeper.set.acl": "true"})
    with pytest.raises(InvalidSetting, match="expected USER:PASSWORD") as refused:
        BrokerSettings.parse({"zookeeper.digest": "secret"})
    assert "secret" not in str(refused.value)
    for text, reason in (
        ("secret", "expected a login module"),
        ('x.DigestLoginModule required username="a" password_="secret";', "needs username and"),
        ('x.Krb5LoginModule required password="secret";', "only DigestLoginModule"),
    ):
        with pytest.raises(InvalidSetting, match=reason) as refused:
            BrokerSettings.parse({"zookeeper.sasl.jaas.config": text})
        assert "secret" not in str(refused.value)
