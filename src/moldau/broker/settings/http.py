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
        "PLAINTEXT, or SSL for HTTPS; with the prefix SASL_, clients log in: Basic for the users "
        "of PLAIN and SCRAM, Bearer for the tokens of OAUTHBEARER. Its settings can be given as "
        "those of a listener called http: listener.name.http.SETTING.",
        choices=PROTOCOLS,
    )
    http_max_connections: int = setting(
        "http.max.connections",
        200,
        "The most HTTP connections that may be open at once. A further connection replaces one "
        "that has sent no request or is between two requests; if there is none, it is closed.",
        minimum=1,
        maximum=INT_MAX,
    )
    http_request_max_bytes: int = setting(
        "http.request.max.bytes",
        4 << 20,
        "The largest body of an HTTP request. A larger body is refused.",
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
        "or auto: on if people have to sign in or the address is loopback.",
        choices=("auto", "on", "read-only", "off"),
    )
    http_console_masks: str = setting(
        "http.console.masks",
        "",
        "Fields that the console hides from everybody, TOPIC:FIELD,..., such as "
        "customers:card.number; @key, @value or @HEADER hide those. * in a topic matches "
        "anything.",
    )
    http_console_oidc_issuer: str = setting(
        "http.console.oidc.issuer",
        "",
        "The URL of the OpenID Connect issuer that people sign in to the console with. The "
        "console talks to the broker with their tokens, over a listener with OAUTHBEARER.",
    )
    http_console_oidc_client_id: str = setting(
        "http.console.oidc.client.id", "", "The console's client id at that issuer."
    )
    http_console_oidc_client_secret: str = setting(
        "http.console.oidc.client.secret",
        "",
        "The console's client secret at that issuer, if any.",
        secret=True,
    )
    http_console_public_url: str = setting(
        "http.console.public.url",
        "",
        "The address of the console for browsers, such as https://kafka.example/console, if it "
        "differs from the HTTP address.",
    )

    metrics_per_partition: bool = setting(
        "metrics.per.partition",
        True,
        "Whether /metrics has series for each partition (offsets, replicas, sizes, lag), besides "
        "those for topics, groups and the broker.",
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
