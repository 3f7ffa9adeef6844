"""A client's security: Kafka's properties, and what TLS and SASL make of them."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from moldau.security.jaas import InvalidJaas, parse_jaas
from moldau.security.tls_settings import TlsSettings
from moldau.settings import InvalidSetting, definitions, replace, setting

if TYPE_CHECKING:
    from moldau.security.sasl_client import ClientExchange

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# Java's class that fetches tokens, under its name and that of versions before 4.1.
_TOKEN_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
# What Java's clients can be told about their own machinery, and means nothing to others.
WITHOUT_EFFECT = (
    "ssl.protocol",
    "ssl.provider",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class ClientSettings(TlsSettings):
    """How a client encrypts, whom it trusts, and how it proves who it is."""

    security_protocol: str = setting(
        "security.protocol",
        "PLAINTEXT",
        "The protocol to connect to brokers with.",
        choices=PROTOCOLS,
    )
    sasl_mechanism: str = setting(
        "sasl.mechanism", "", "The SASL mechanism.", choices=("", *MECHANISMS)
    )
    sasl_jaas_config: str = setting(
        "sasl.jaas.config", "", "The login module with username and password.", secret=True
    )
    sasl_username: str = setting("sasl.username", "", "The user name, if there is no login module.")
    sasl_password: str = setting("sasl.password", "", "The password of that user.", secret=True)
    sasl_oauthbearer_token_endpoint_url: str = setting(
        "sasl.oauthbearer.token.endpoint.url",
        "",
        "Where to get a token: a file:///... that contains one, or an https://... that issues one "
        "for the clientId and clientSecret of the login module.",
    )
    sasl_oauthbearer_client_credentials_client_id: str = setting(
        "sasl.oauthbearer.client.credentials.client.id",
        "",
        "The clientId for that URL, if there is no login module.",
    )
    sasl_oauthbearer_client_credentials_client_secret: str = setting(
        "sasl.oauthbearer.client.credentials.client.secret",
        "",
        "The clientSecret for that URL, if there is no login module.",
        secret=True,
    )
    sasl_oauthbearer_scope: str = setting(
        "sasl.oauthbearer.scope", "", "The scope for that URL, if there is no login module."
    )
    sasl_login_callback_handler_class: str = setting(
        "sasl.login.callback.handler.class",
        "",
        "Needed by Java clients to fetch tokens from that URL; no effect here.",
        choices=("", *_TOKEN_HANDLERS),
    )


def is_security(name: str) -> bool:
    """Return whether a client's property is one of security."""
    return name.startswith(("ssl.", "sasl.")) or name == "security.protocol"


@dataclass(slots=True, eq=False)
class ClientSecurity:
    """What a client's properties come to. It can be sent to another process, and equals another of
    the same settings.

    A context is made once, and again when a file of it has changed.
    """

    settings: ClientSettings
    _context: ssl.SSLContext | None = field(default=None, repr=False)
    _stamps: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.has_sasl:
            if not self.settings.sasl_mechanism:
                raise InvalidSetting(
                    "sasl.mechanism", None, f"{self.settings.security_protocol} needs one"
                )
            # Read once here, so that a wrong text is an error of the settings.
            self.exchange()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientSecurity) and self.settings == other.settings

    def __hash__(self) -> int:
        return hash(self.settings)

    def __getstate__(self) -> ClientSettings:
        return self.settings

    def __setstate__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._context = self._stamps = None

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> ClientSecurity | None:
        """Return what these properties mean, None if they ask for no security.

        Those that are not about security are left out. InvalidSetting for one that cannot be.
        """
        known = definitions(ClientSettings)
        texts = {}
        for name, text in properties.items():
            if name == "sasl.mechanisms":
                name = "sasl.mechanism"
            if name in known:
                texts[name] = text.upper() if name == "security.protocol" else text
            elif is_security(name) and name not in WITHOUT_EFFECT:
                raise InvalidSetting(name, None, "there is no such security setting")
        settings = replace(ClientSettings(), texts)
        return None if settings.security_protocol == "PLAINTEXT" else cls(settings)

    def properties(self) -> dict[str, str]:
        """Return the properties that mean this, passwords included."""
        found = {}
        for name, definition in definitions(ClientSettings).items():
            value = getattr(self.settings, definition.attribute)
            if value != definition.default:
                found[name] = definition.format(value)
        return found

    @property
    def has_tls(self) -> bool:
        return self.settings.security_protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.settings.security_protocol.startswith("SASL")

    @property
    def mechanism(self) -> str:
        return self.settings.sasl_mechanism

    def context(self) -> ssl.SSLContext | None:
        """Return the context of TLS, None without; TlsError if it cannot be made."""
        if not self.has_tls:
            return None
        from moldau.security.tls import client_context, stamps

        found = stamps(self.settings)
        if self._context is None or found != self._stamps:
            self._context = client_context(self.settings)
            self._stamps = found
        return self._context

    def login(self) -> dict[str, str]:
        """Return the options of the login module."""
        settings = self.settings
        if settings.sasl_username:
            return {"username": settings.sasl_username, "password": settings.sasl_password}
        if not settings.sasl_jaas_config:
            return {}
        try:
            return parse_jaas(settings.sasl_jaas_config).options
        except InvalidJaas as problem:
            raise InvalidSetting("sasl.jaas.config", None, str(problem)) from None

    def http_login(self, url: str, *, in_clear: bool = False) -> str:
        """Return USER:PASSWORD for a server of the cluster over HTTP; empty if there is none.

        A password that brokers get over TLS goes nowhere else without, save on this machine or
        `in_clear`.
        """
        login = self.login() if self.has_sasl else {}
        if "username" not in login or "password" not in login:
            return ""
        parts = urlsplit(url)
        is_safe = parts.scheme == "https" or _is_here(parts.hostname or "")
        if self.has_tls and not is_safe and not in_clear:
            return ""
        return f"{login['username']}:{login['password']}"

    def exchange(self) -> ClientExchange:
        """Begin to authenticate; InvalidSetting where name or password are missing."""
        from moldau.security import sasl_client

        login = self.login()
        if self.mechanism == "OAUTHBEARER":
            url = self.settings.sasl_oauthbearer_token_endpoint_url
            if not url:
                name = "sasl.oauthbearer.token.endpoint.url"
                raise InvalidSetting(name, None, "OAUTHBEARER needs it")
            settings = self.settings
            own = {
                "clientId": settings.sasl_oauthbearer_client_credentials_client_id,
                "clientSecret": settings.sasl_oauthbearer_client_credentials_client_secret,
                "scope": settings.sasl_oauthbearer_scope,
            }
            return sasl_client.Oauthbearer(url, login | {k: v for k, v in own.items() if v})
        if not login.get("username") or "password" not in login:
            raise InvalidSetting(
                "sasl.jaas.config", None, f"{self.mechanism} needs username and password"
            )
        user, password = login["username"], login["password"]
        try:
            if self.mechanism == "PLAIN":
                return sasl_client.Plain(user, password)
            return sasl_client.Scram(self.mechanism, user, password)
        except UnicodeEncodeError:
            raise InvalidSetting(
                "sasl.jaas.config", None, "username or password is not UTF-8"
            ) from None


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
