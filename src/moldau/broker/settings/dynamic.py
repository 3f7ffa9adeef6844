"""The settings that can change while a broker runs, and what they come to."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache

from msgspec.structs import replace

from moldau.broker.settings.broker import BrokerSettings
from moldau.broker.settings.security import PREFIX, SecuritySettings
from moldau.log.config import LogConfig, topic_defaults
from moldau.settings import InvalidSetting, Setting, definitions

BrokerConfigs = Mapping[int | None, Mapping[str, str]]

# What can change of one listener of one broker. No passwords: they would stand in the cluster's
# metadata in clear, so that a new keystore has to have the password of the old one.
_OF_LISTENERS = (
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.truststore.certificates",
)

logger = logging.getLogger("moldau.broker")


@cache
def broker_settings() -> dict[str, Setting]:
    """Return every setting that a broker has, by name; its own, and the defaults it gives to
    topics."""
    known: dict[str, Setting] = {}
    for setting in definitions(LogConfig).values():
        for name, _ in setting.synonyms:
            known[name] = setting
    return known | definitions(BrokerSettings)


@cache
def dynamic_settings() -> frozenset[str]:
    """Return the names that AlterConfigs may set on a broker.

    A default that topics take over the next time they ask is as good as any; the same in hours or
    minutes is not, as in Kafka, for then it would depend on which one was set.
    """
    own = {setting.name for setting in definitions(BrokerSettings).values() if setting.dynamic}
    of_topics = {each.synonyms[0][0] for each in definitions(LogConfig).values() if each.synonyms}
    return frozenset(own | of_topics)


def listener_setting(name: str) -> Setting | None:
    """Return the setting of a listener that AlterConfigs may set by this name, if it is one."""
    if not name.startswith(PREFIX):
        return None
    own = name.removeprefix(PREFIX).partition(".")[2]
    return definitions(SecuritySettings)[own] if own in _OF_LISTENERS else None


def listener_texts(settings: BrokerSettings, configs: BrokerConfigs) -> dict[str, str]:
    """Return what was given of all settings, as this broker's dynamic ones of listeners change
    it."""
    dynamic = configs.get(settings.node_id, {})
    return {**settings.given, **{k: v for k, v in dynamic.items() if listener_setting(k)}}


def with_dynamic(settings: BrokerSettings, configs: BrokerConfigs) -> BrokerSettings:
    """`settings` as the cluster's dynamic settings change them; InvalidSetting for a bad one.

    What is not set dynamically is as it was given, or has its default. `given` stays.
    """
    dynamic = _for_broker(settings.node_id, configs)
    for name, text in dynamic.items():
        (listener_setting(name) or broker_settings()[name]).parse(text)
    values = {}
    for name, setting in definitions(BrokerSettings).items():
        if setting.dynamic:
            given = dynamic.get(name, settings.given.get(name))
            values[setting.attribute] = setting.default if given is None else setting.parse(given)
    defaults = topic_defaults({**settings.given, **dynamic})
    return replace(settings, topic_defaults=defaults, **values)


def effective_settings(settings: BrokerSettings, configs: BrokerConfigs) -> BrokerSettings:
    """Return the same where nothing can be refused any more, as at a start.

    Settings that this version cannot take are left out and complained about.
    """
    dynamic = _for_broker(settings.node_id, configs)
    accepted: dict[str, str] = {}
    result = with_dynamic(settings, {})
    for name, text in dynamic.items():
        try:
            if name not in dynamic_settings() and listener_setting(name) is None:
                raise InvalidSetting(name, text, "cannot be set dynamically")
            result = with_dynamic(settings, {None: {**accepted, name: text}})
        except InvalidSetting as error:
            logger.error("ignoring a dynamic setting: %s", error)
        else:
            accepted[name] = text
    return result


def _for_broker(broker: int, configs: BrokerConfigs) -> dict[str, str]:
    return {**configs.get(None, {}), **configs.get(broker, {})}
