"""Settings of a console."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from moldau.console.values.masks import Mask
from moldau.peer.retries import PeerSettings
from moldau.schemas.registry_settings import RegistrySettings
from moldau.security.client import ClientSecurity

# The mechanisms that take a name and a password, the best first.
PASSWORD_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """The issuer that people sign in with, and what this console is there."""

    issuer: str
    client_id: str
    client_secret: str = ""
    scope: str = "openid profile"
    # Where the browser comes back to: this console's own address as people see it.
    redirect_url: str = ""


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """What a console connects to, and how much it lets people do.

    `security` is the console's own: it takes samples with it and, unless people sign in, does
    everything with it. `sign_in` has the properties by which people connect who sign in with a name
    and a password of their own; None if they need not.
    """

    bootstrap: str
    security: ClientSecurity | None = None
    sign_in: Mapping[str, str] | None = None
    registry: str = ""
    read_only: bool = False
    masks: tuple[Mask, ...] = ()
    oidc: OidcSettings | None = None
    # Names by which browsers may address a console without sign-in, beside numeric ones.
    hosts: frozenset[str] = field(default_factory=frozenset)
    # Where brokers show metrics over HTTP, and USER:PASSWORD for that if it is not `security`'s.
    metrics: tuple[str, ...] = ()
    metrics_login: str = field(default="", repr=False)
    # What the console's own settings say about the registry; with a login, all visitors share it.
    registry_own: RegistrySettings | None = None
    sample_every_s: float = 10.0
    # Of a console in a broker: gives the broker's token for the address of a visitor.
    vouch: Callable[[str], str] | None = field(default=None, repr=False)
    # Of a console in a broker: its registry is on this machine, whatever its address.
    registry_is_here: bool = False

    @property
    def has_login(self) -> bool:
        """Whether the console can connect under a name of its own, or without any."""
        return self.security is not None or self.sign_in is None

    def registry_user(self, security: ClientSecurity | None) -> str | None:
        """Return USER:PASSWORD of somebody for the registry; None if it is asked without."""
        if security is None or (self.registry_own is not None and self.registry_own.has_login):
            return None
        return security.http_login(self.registry, in_clear=self.registry_is_here) or None

    def peer(self, security: ClientSecurity | None, address: str = "") -> PeerSettings:
        """Return how to connect as somebody at an address: soon refused rather than long
        retried."""
        return PeerSettings(
            client_id="moldau-console",
            security=security,
            connect_timeout_s=3.0,
            request_timeout_s=10.0,
            retry_within_s=3.0,
            reach_within_s=2.0,
            unknown_topic_within_s=0.5,
            origin=None if self.vouch is None or not address else partial(self.vouch, address),
        )

    def security_of(self, user: str, password: str) -> ClientSecurity | None:
        """Return how somebody connects with this name and password."""
        assert self.sign_in is not None
        given = {"sasl.username": user, "sasl.password": password}
        return ClientSecurity.parse({**self.sign_in, **given})


def sign_in_properties(properties: Mapping[str, str]) -> dict[str, str] | None:
    """Return the properties of a client without who it is; None if they ask for no login."""
    if not properties.get("security.protocol", "").upper().startswith("SASL"):
        return None
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or ""
    kept = {
        name: text for name, text in properties.items() if name.startswith(("ssl.", "security."))
    }
    by_token = mechanism == "OAUTHBEARER"
    kept["sasl.mechanism"] = (
        mechanism if by_token or mechanism in PASSWORD_MECHANISMS else "SCRAM-SHA-512"
    )
    return kept
