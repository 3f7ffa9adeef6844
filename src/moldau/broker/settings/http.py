"""The settings of the HTTP side of a broker."""

from __future__ import annotations

from moldau.broker.settings.listeners import (
    PLAINTEXT,
    PROTOCOLS,
    Address,
    ListenerSettings,
    parse_address,
)
from moldau.settings import INT_MAX, InvalidSetting, setting

# The name under which its settings of security are given, as if it were one of the listeners.
HTTP = "HTTP"


class HttpSettings(ListenerSettings):
    """Where a broker serves HTTP, if at all, and how much of it."""

    http_listen: str = setting(
        "http.listen",
        "",
        "The address for HTTP (health, metrics, schema registry, console), HOST:PORT; port 0 "
        "takes a free one. If empty, there is none.",
    )
    http_security_protocol: str = setting(
        "http.security.protocol",
        PLAINTEXT,
        "PLAINTEXT, SSL for HTTPS, and with SASL_ before it for logins: Basic by the users of "
        "PLAIN and SCRAM, Bearer by the tokens of OAUTHBEARER. Its settings can be given as "
        "those of a listener called http: listener.name.http.SETTING.",
        choices=PROTOCOLS,
    )
    http_max_connections: int = setting(
        "http.max.connections",
        200,
        "The most HTTP connections that may be open at once. One more takes the place of one that "
        "has sent no request or is between two; if there is none, it is closed.",
        minimum=1,
        maximum=INT_MAX,
    )
    http_request_max_bytes: int = setting(
        "http.request.max.bytes",
        4 << 20,
        "The largest body of an HTTP request. A larger one is refused.",
        minimum=1,
        maximum=INT_MAX,
    )
    http_request_timeout_ms: int = setting(
        "http.request.timeout.ms",
        30_000,
        "How long an HTTP request may take to arrive and to be answered.",
        minimum=1,
        maximum=INT_MAX,
    )

    http_console: str = setting(
        "http.console",
        "auto",
        "Whether the web console is served at /console/ of the HTTP address: on, read-only, off, "
        "or auto: on where people have to sign in or the address is loopback.",
        choices=("auto", "on", "read-only", "off"),
    )
    http_console_masks: str = setting(
        "http.console.masks",
        "",
        "Fields that the console shows to nobody, TOPIC:FIELD,..., such as customers:card.number; "
        "@key, @value or @HEADER for those. * in a topic stands for anything.",
    )
    http_console_oidc_issuer: str = setting(
        "http.console.oidc.issuer",
        "",
        "The OpenID Connect issuer, a URL, that people sign in to the console with. The broker is "
        "asked with their tokens, at a listener with OAUTHBEARER.",
    )
    http_console_oidc_client_id: str = setting(
        "http.console.oidc.client.id", "", "What the console is called there."
    )
    http_console_oidc_client_secret: str = setting(
        "http.console.oidc.client.secret", "", "The console's secret there, if any.", secret=True
    )
    http_console_public_url: str = setting(
        "http.console.public.url",
        "",
        "Where browsers reach the console, such as https://kafka.example/console, if that is not "
        "where HTTP is served.",
    )

    metrics_per_partition: bool = setting(
        "metrics.per.partition",
        True,
        "Whether /metrics has series of each partition (offsets, replicas, sizes, lag), beside "
        "those of topics, groups and the broker.",
        dynamic=True,
    )

    @property
    def http_address(self) -> Address | None:
        """Where HTTP is served; None if it is not."""
        return parse_address("http.listen", self.http_listen) if self.http_listen else None

    @property
    def console_masks(self) -> list[str]:
        """The masks of the console; InvalidSetting for one that is none."""
        found = [each.strip() for each in self.http_console_masks.split(",") if each.strip()]
        for each in found:
            topic, _, field = each.partition(":")
            if not topic or not field.strip("@."):
                reason = f"{each!r} is not TOPIC:FIELD, such as customers:card.number"
                raise InvalidSetting("http.console.masks", self.http_console_masks, reason)
        return found

    @property
    def console_issuer(self) -> str:
        """The issuer that people sign in with, if any; InvalidSetting if it cannot know us."""
        issuer = self.http_console_oidc_issuer
        if issuer and not self.http_console_oidc_client_id:
            reason = "an issuer needs http.console.oidc.client.id"
            raise InvalidSetting("http.console.oidc.issuer", issuer, reason)
        return issuer
