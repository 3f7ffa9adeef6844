"""The settings of security, for the whole broker or for one listener.

Each may be given for one listener alone, as `listener.name.NAME.SETTING`, and those of SASL for
one of its mechanisms, as `listener.name.NAME.MECHANISM.SETTING`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moldau.security.tls_settings import TlsSettings
from moldau.settings import (
    INT_MAX,
    InvalidSetting,
    Setting,
    definitions,
    replace,
    setting,
    unknown,
)

PREFIX = "listener.name."
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
JAAS = "sasl.jaas.config"


class SecuritySettings(TlsSettings):
    """How clients of a listener prove who they are, and the broker to them."""

    ssl_client_auth: str = setting(
        "ssl.client.auth",
        "none",
        "Whether clients have to send a certificate: required, requested or none. The "
        "principal of a client is the name in its certificate.",
        choices=("none", "requested", "required"),
    )
    ssl_principal_mapping_rules: str = setting(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        "How to turn the name in a client's certificate into a user name: rules "
        "RULE:pattern/replacement/[LU],... of which the first match applies, or DEFAULT for the "
        "whole name.",
    )
    ssl_reload_interval_ms: int = setting(
        "ssl.reload.interval.ms",
        10_000,
        "How often the keystore and truststore files are checked for changes. New connections use "
        "the new contents.",
        minimum=10,
        maximum=INT_MAX,
    )
    connection_authentication_timeout_ms: int = setting(
        "connection.authentication.timeout.ms",
        10_000,
        "How long a client may take for the TLS handshake and SASL together.",
        minimum=1,
        maximum=INT_MAX,
    )
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        "sasl.enabled.mechanisms",
        (),
        "The mechanisms that clients of a SASL listener may authenticate with.",
        choices=MECHANISMS,
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        "sasl.mechanism.inter.broker.protocol",
        "",
        "The mechanism that brokers authenticate to each other with. If empty, the first of "
        "sasl.enabled.mechanisms.",
        choices=("", *MECHANISMS),
    )
    sasl_server_max_receive_size: int = setting(
        "sasl.server.max.receive.size",
        64 << 10,
        "The largest request of a client that has not authenticated yet.",
        minimum=1,
        maximum=INT_MAX,
    )
    connection_failed_authentication_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms",
        100,
        "How long to delay the answer to a failed authentication, and the end of the connection.",
        minimum=0,
        maximum=INT_MAX,
    )
    connections_max_reauth_ms: int = setting(
        "connections.max.reauth.ms",
        0,
        "How long an authentication is valid. Clients authenticate again before it ends, over the "
        "same connection (KIP-368); 0 means for ever.",
        minimum=0,
    )
    sasl_oauthbearer_jwks_endpoint_url: str = setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        "",
        "The URL of the identity provider's keys: https://... or file:///...",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        "How often the identity provider's keys are fetched again.",
        minimum=1,
    )
    sasl_oauthbearer_expected_issuer: str = setting(
        "sasl.oauthbearer.expected.issuer", "", "The issuer that a token must name."
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        "sasl.oauthbearer.expected.audience",
        (),
        "The audiences; a token must name one of them.",
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        "sasl.oauthbearer.sub.claim.name", "sub", "The token's claim that names the user."
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "How far the clocks of the broker and the identity provider may differ.",
        minimum=0,
        maximum=INT_MAX,
    )


# What can be set for one mechanism of a listener.
_BY_MECHANISM = (JAAS, "connections.max.reauth.ms")


def check(given: Mapping[str, str], listeners: Iterable[str]) -> None:
    """Raise InvalidSetting for a setting of a listener that there is not, or not so."""
    names = {each.lower() for each in listeners}
    for key, text in given.items():
        if not key.startswith(PREFIX):
            continue
        listener, _, name = key.removeprefix(PREFIX).partition(".")
        if listener not in names:
            reason = f"there is no listener {listener}, only {', '.join(sorted(names))}"
            raise InvalidSetting(key, None, reason)
        known = definitions(SecuritySettings)
        mechanism, _, inner = name.partition(".")
        if mechanism.upper() in MECHANISMS and inner in _BY_MECHANISM:
            if inner == JAAS:
                continue
            name = inner
        if name not in known:
            raise unknown(key, [f"{PREFIX}{listener}.{each}" for each in known])
        try:
            known[name].parse(text)
        except InvalidSetting as problem:
            raise InvalidSetting(key, problem.value, problem.reason) from None


def of_listener(given: Mapping[str, str], listener: str) -> SecuritySettings:
    """Return what counts for a listener: its own settings, and the broker's for all others."""
    prefix = f"{PREFIX}{listener.lower()}."
    values = {}
    for name in definitions(SecuritySettings):
        text = given.get(prefix + name, given.get(name))
        if text is not None:
            values[name] = text
    return replace(SecuritySettings(), values)


def is_secret(name: str, known: Mapping[str, Setting]) -> bool:
    """Return whether the value of a setting, `known` or one of a listener, is shown to nobody."""
    if name.startswith(PREFIX):
        name, known = name.removeprefix(PREFIX).partition(".")[2], definitions(SecuritySettings)
    return name.endswith(JAAS) or (name in known and known[name].secret)
