"""The security of a broker's connections to others: that of the listener where they come in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from moldau.broker.security.sasl.doors import jaas_setting
from moldau.broker.settings.broker import BrokerSettings
from moldau.broker.settings.listeners import PLAINTEXT
from moldau.broker.settings.security import of_listener
from moldau.security.tls_settings import TlsSettings
from moldau.settings import InvalidSetting, definitions

if TYPE_CHECKING:
    from moldau.security.client import ClientSecurity


def inter_broker_security(
    settings: BrokerSettings, given: Mapping[str, str]
) -> ClientSecurity | None:
    """Return how this broker proves to others who it is, None if it need not.

    InvalidSetting where a broker of a cluster has no name or password for that.
    """
    name = settings.inter_broker_listener
    (address,) = (each for each in settings.all_listeners if each.name == name)
    if address.protocol == PLAINTEXT or not settings.zookeeper_connect:
        return None
    from moldau.security.client import ClientSecurity

    own = of_listener(given, name)
    properties = {"security.protocol": address.protocol}
    for key, definition in definitions(TlsSettings).items():
        properties[key] = definition.format(getattr(own, definition.attribute))
    if address.has_sasl:
        mechanism = own.sasl_mechanism_inter_broker_protocol or own.sasl_enabled_mechanisms[0]
        properties["sasl.mechanism"] = mechanism
        properties["sasl.jaas.config"] = settings.given.get(jaas_setting(mechanism, name), "")
        try:
            return ClientSecurity.parse(properties)
        except InvalidSetting as problem:
            raise InvalidSetting(
                jaas_setting(mechanism, name),
                None,
                f"connections to other brokers need this: {problem.reason}",
            ) from None
    return ClientSecurity.parse(properties)
