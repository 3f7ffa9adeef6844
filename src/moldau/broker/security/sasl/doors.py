"""The mechanisms of a listener, made from its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from moldau.broker.security.credentials import Credentials
from moldau.broker.security.sasl.mechanism import Mechanism
from moldau.broker.security.sasl.plain import Plain, users_of
from moldau.broker.security.sasl.sasl import SaslDoor
from moldau.broker.settings.security import JAAS, PREFIX, SecuritySettings
from moldau.security.jaas import InvalidJaas, Jaas, parse_jaas
from moldau.settings import InvalidSetting

_MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}
_REAUTH = "connections.max.reauth.ms"


def new_door(
    listener: str,
    given: Mapping[str, str],
    settings: SecuritySettings,
    credentials: Callable[[], Credentials],
    secret: Callable[[], bytes],
) -> SaslDoor:
    """Return what the clients of a listener authenticate by; InvalidSetting for what cannot be."""
    enabled = settings.sasl_enabled_mechanisms
    if not enabled:
        reason = f"listener {listener} has SASL and needs at least one mechanism"
        raise InvalidSetting("sasl.enabled.mechanisms", None, reason)
    mechanisms = {
        name: _mechanism(name, listener, given, settings, credentials, secret) for name in enabled
    }
    return SaslDoor(
        mechanisms,
        settings.sasl_server_max_receive_size,
        settings.connection_authentication_timeout_ms / 1000,
        settings.connection_failed_authentication_delay_ms / 1000,
        {name: _max_session_ms(name, listener, given, settings) for name in enabled},
    )


def _mechanism(
    name: str,
    listener: str,
    given: Mapping[str, str],
    settings: SecuritySettings,
    credentials: Callable[[], Credentials],
    secret: Callable[[], bytes],
) -> Mechanism:
    if name == "OAUTHBEARER":
        from moldau.broker.security.sasl.oauthbearer import Oauthbearer

        return Oauthbearer(settings)
    jaas = jaas_of(name, listener, given)
    options = {} if jaas is None else jaas.options
    if name == "PLAIN":
        users = users_of(options)
        if not users:
            raise InvalidSetting(
                jaas_setting(name, listener), None, 'PLAIN needs users: user_NAME="PASSWORD"'
            )
        return Plain(users)
    from moldau.broker.security.sasl.scram import Scram

    own = users_of(options)
    if "username" in options and "password" in options:
        # The brokers know each other before the cluster's metadata can be read.
        own[options["username"]] = options["password"]
    return Scram(name, own, credentials, secret)


def jaas_setting(mechanism: str, listener: str) -> str:
    """Return the name of the setting for a listener's login module."""
    return f"{PREFIX}{listener.lower()}.{mechanism.lower()}.{JAAS}"


def jaas_of(mechanism: str, listener: str, given: Mapping[str, str]) -> Jaas | None:
    """Return a listener's login module for a mechanism; None if it has none."""
    setting = jaas_setting(mechanism, listener)
    text = given.get(setting)
    if text is None:
        return None
    try:
        jaas = parse_jaas(text)
    except InvalidJaas as problem:
        raise InvalidSetting(setting, None, str(problem)) from None
    if jaas.module != _MODULES[mechanism]:
        reason = f"{mechanism} needs {_MODULES[mechanism]}, not {jaas.module}"
        raise InvalidSetting(setting, None, reason)
    return jaas


def _max_session_ms(
    mechanism: str, listener: str, given: Mapping[str, str], settings: SecuritySettings
) -> int:
    text = given.get(f"{PREFIX}{listener.lower()}.{mechanism.lower()}.{_REAUTH}")
    return settings.connections_max_reauth_ms if text is None else int(text)
