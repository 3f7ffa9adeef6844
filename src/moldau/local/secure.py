"""A locked set-up in one folder: an authority, certificates, passwords, and what a client needs.

    authority.pem      the authority's key and certificate: signs further certificates
    authority.crt      its certificate alone: what clients trust
    broker-N.pem       the key and certificate of broker N
    passwords.json     of the users `admin` and `broker`, and for ZooKeeper
    brokers.json       where clients reach each broker that was started with this folder
    admin.properties   the client's config of the user `admin`

Clients come in by SCRAM over TLS, and so do the brokers among themselves; who has no right may do
nothing. `admin` and the brokers may do everything. Only the owner of the files can read them.
Brokers of one cluster share the folder, or each has a copy of it.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from moldau.security.authority import Authority

LISTENER = "SASL_SSL"
MECHANISM = "SCRAM-SHA-512"
ADMIN, BROKER, ZOOKEEPER = "admin", "broker", "zookeeper"
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_WILDCARDS = ("", "0.0.0.0", "::")


class SecureFolder:
    """The files of one set-up, made where they are missing.

    Brokers that start at once may have the same folder: one of them makes what is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked():
            self._authority = self._open_authority()
            self._passwords = self._open_passwords()

    @property
    def authority(self) -> Path:
        """The certificate that clients have to trust."""
        return self.folder / "authority.crt"

    @property
    def admin_config(self) -> Path:
        return self.folder / "admin.properties"

    def broker_settings(
        self,
        broker: int,
        listen: str,
        advertise: str = "",
        *,
        zookeeper: bool = False,
        http: bool = False,
    ) -> dict[str, str]:
        """Return the settings of a broker that listens there, both HOST:PORT.

        With `http` its HTTP side asks the same users for their passwords, over HTTPS.
        """
        keystore = self.folder / f"broker-{broker}.pem"
        issued = self._authority.issue(f"broker-{broker}", _hosts(listen, advertise))
        write_private(keystore, issued.pem)
        jaas = (
            f'{_MODULE} required username="{BROKER}" password="{self._passwords[BROKER]}" '
            f'user_{ADMIN}="{self._passwords[ADMIN]}";'
        )
        settings = {
            "listeners": f"{LISTENER}://{listen}",
            "inter.broker.listener.name": LISTENER,
            "ssl.keystore.location": str(keystore),
            "ssl.truststore.location": str(self.authority),
            "sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.{LISTENER.lower()}.{MECHANISM.lower()}.sasl.jaas.config": jaas,
            "authorizer.class.name": _AUTHORIZER,
            "super.users": f"User:{ADMIN};User:{BROKER}",
        }
        if advertise:
            settings["advertised.listeners"] = f"{LISTENER}://{advertise}"
        if http:
            settings["http.security.protocol"] = LISTENER
            settings[f"listener.name.http.{MECHANISM.lower()}.sasl.jaas.config"] = jaas
        if zookeeper:
            settings["zookeeper.set.acl"] = "true"
            settings["zookeeper.digest"] = f"{BROKER}:{self._passwords[ZOOKEEPER]}"
        return settings

    def write_broker_config(self, broker: int, settings: dict[str, str]) -> Path:
        """Write a broker's settings to a file of its own: the command line is for everybody."""
        path = self.folder / f"broker-{broker}.properties"
        write_private(path, "".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def client_settings(self, bootstrap: str) -> dict[str, str]:
        """Return what a client of `admin` has to know, with the address if that is known."""
        password = self._passwords[ADMIN]
        return ({"bootstrap.servers": bootstrap} if bootstrap else {}) | {
            "security.protocol": LISTENER,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{_MODULE} required username="{ADMIN}" password="{password}";',
        }

    def write_client_config(self, bootstrap: str) -> Path:
        """Write the same to a file for `--client-config` and for Kafka's own tools."""
        settings = self.client_settings(bootstrap)
        write_private(
            self.admin_config, "".join(f"{key}={value}\n" for key, value in settings.items())
        )
        return self.admin_config

    def add_broker(self, broker: int, address: str) -> Path:
        """Write the client's config with the addresses of all brokers so far.

        One without an `address` takes any port, and clients have to be told by other means.
        """
        path = self.folder / "brokers.json"
        with self._locked():
            known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
            known.pop(str(broker), None)
            if address:
                known[str(broker)] = address
            write_private(path, json.dumps(known))
            return self.write_client_config(",".join(known.values()))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from this folder, which are done in a moment."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _open_authority(self) -> Authority:
        path = self.folder / "authority.pem"
        if path.exists():
            return Authority.load(path.read_text())
        authority = Authority.create()
        # The other file first: where the key is, all is there.
        self.authority.write_text(authority.certificate)
        write_private(path, authority.pem)
        return authority

    def _open_passwords(self) -> dict[str, str]:
        path = self.folder / "passwords.json"
        if path.exists():
            return dict(json.loads(path.read_text()))
        passwords = {name: secrets.token_urlsafe(24) for name in (ADMIN, BROKER, ZOOKEEPER)}
        write_private(path, json.dumps(passwords))
        return passwords


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read; whoever looks finds the old one or the new."""
    written = path.with_name(f"{path.name}.new")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o600)
        file.write(text)
    written.replace(path)


def _hosts(*addresses: str) -> list[str]:
    """Return the names and addresses that a broker's certificate has to hold."""
    found: Iterable[str] = (each.rpartition(":")[0].strip("[]") for each in addresses)
    own = ("127.0.0.1", "localhost", socket.gethostname())
    return list(dict.fromkeys((*own, *(each for each in found if each not in _WILDCARDS))))
