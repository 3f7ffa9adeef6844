"""Doors: the protocols and mechanisms of one locked broker, and what a client needs at each.

Whoever comes in may only use topics and groups that begin with the name that the door gives them,
so that a record that went in and out was one of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from moldau.broker.settings.access import STANDARD_AUTHORIZER
from moldau.testing import Broker
from moldau.wire.acls import Operation, PatternType, Resource
from tests.broker.principals import Person
from tests.certificates import authority, of_user, tls_settings
from tests.clients.security.tokens import provider_settings, token

PASSWORD = "wonder land"
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (*PASSWORDS, "OAUTHBEARER")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PREFIX = "org.apache.kafka.common.security"
MODULES = {
    "PLAIN": f"{PREFIX}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{PREFIX}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{PREFIX}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{PREFIX}.oauthbearer.OAuthBearerLoginModule",
}


@dataclass(frozen=True, slots=True)
class Door:
    """A way into the broker."""

    protocol: str
    mechanism: str = ""
    with_certificate: bool = False

    def __str__(self) -> str:
        """A name that can be part of a topic's."""
        more = self.mechanism or ("certificate" if self.with_certificate else "")
        return f"{self.protocol}.{more}".rstrip(".")

    @property
    def who(self) -> str:
        """Whom the broker takes its clients for."""
        return "alice" if self.mechanism or self.with_certificate else "ANONYMOUS"

    @property
    def is_encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    def address(self, broker: Broker) -> str:
        assert broker._server is not None
        return f"127.0.0.1:{broker._server.listener(self.protocol).port}"

    def properties(self, broker: Broker, folder: Path) -> dict[str, str]:
        """What a client needs, under Java's names; `folder` gets the files that they name."""
        found = {
            "bootstrap.servers": self.address(broker),
            "security.protocol": self.protocol,
        }
        if self.is_encrypted:
            (folder / "trusted.pem").write_text(authority().certificate)
            found["ssl.truststore.type"] = "PEM"
            found["ssl.truststore.location"] = str(folder / "trusted.pem")
        if self.with_certificate:
            (folder / "alice.pem").write_text(of_user("alice").pem)
            found["ssl.keystore.type"] = "PEM"
            found["ssl.keystore.location"] = str(folder / "alice.pem")
        if self.mechanism:
            found["sasl.mechanism"] = self.mechanism
            login = f' username="alice" password="{PASSWORD}"' if self.has_password else ""
            found["sasl.jaas.config"] = f"{MODULES[self.mechanism]} required{login};"
        if self.mechanism == "OAUTHBEARER":
            (folder / "token").write_text(token(600))
            found["sasl.oauthbearer.token.endpoint.url"] = (folder / "token").as_uri()
            found["sasl.login.callback.handler.class"] = (
                f"{PREFIX}.oauthbearer.OAuthBearerLoginCallbackHandler"
            )
        return found

    @property
    def has_password(self) -> bool:
        return self.mechanism in PASSWORDS


DOORS = (
    Door("PLAINTEXT"),
    Door("SSL"),
    Door("SSL", with_certificate=True),
    *(Door(protocol, each) for protocol in PROTOCOLS[2:] for each in MECHANISMS),
)


@contextmanager
def broker_with_all_doors(folder: Path) -> Iterator[Broker]:
    """A broker that has all of them; its certificates are in `folder`."""
    settings = tls_settings(folder) | provider_settings(folder)
    settings |= {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in PROTOCOLS),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.client.auth": "requested",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
    }
    for listener in PROTOCOLS[2:]:
        for mechanism in PASSWORDS:
            key = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
            settings[key] = f'{MODULES[mechanism]} required user_alice="{PASSWORD}";'
    with Broker(settings) as broker:
        with Person(broker, "admin") as admin:
            for who in ("alice", "ANONYMOUS"):
                for resource in (Resource.TOPIC, Resource.GROUP):
                    admin.grant(
                        who, Operation.ALL, resource, f"{who}.", pattern=PatternType.PREFIXED
                    )
        yield broker
