"""Settings as the config APIs show them: the value, where it came from, what it overrode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum

import msgspec
from msgspec.structs import replace

from moldau.broker.settings.broker import BrokerSettings
from moldau.broker.settings.dynamic import (
    BrokerConfigs,
    broker_settings,
    dynamic_settings,
    effective_settings,
    listener_setting,
)
from moldau.log.config import LogConfig
from moldau.settings import Setting, definitions


class Source(IntEnum):
    """The source of a value, by Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


CONFIG_TYPES = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "password": 9,
}

# What Kafka counts in 16 bits.
_SHORTS = frozenset(
    (
        "offsets.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "transaction.state.log.replication.factor",
    )
)
# Kafka's own default is null: the flush is the operating system's business.
_WITHOUT_DEFAULT = ("log.flush.interval.ms",)


class Synonym(msgspec.Struct, frozen=True):
    """A name under which a setting has a value; the first of an entry's is the one in force."""

    name: str
    value: str | None
    source: Source


class ConfigEntry(msgspec.Struct, frozen=True):
    """One setting of a topic, a broker or a group."""

    setting: Setting
    name: str
    value: str | None
    read_only: bool
    synonyms: list[Synonym]

    @property
    def source(self) -> Source:
        return self.synonyms[0].source if self.synonyms else Source.DEFAULT

    @property
    def config_type(self) -> int:
        if self.name in _SHORTS:
            return CONFIG_TYPES["short"]
        # Settings in minutes or hours are ints in Kafka, whatever the type of their milliseconds.
        in_other_units = dict(self.setting.synonyms).get(self.name, 1) != 1
        return CONFIG_TYPES["int" if in_other_units else self.setting.kind]


def topic_entries(
    configs: Mapping[str, str],
    settings: BrokerSettings,
    dynamic: BrokerConfigs,
    *,
    all_units: bool = False,
) -> list[ConfigEntry]:
    """Return all settings of a topic that has `configs` of its own.

    With `all_units` the source of a value may be a setting in hours; of Kafka's answers those about
    new topics are so, and those about old ones are not.
    """
    if dynamic:
        settings = effective_settings(settings, dynamic)
    config = LogConfig.parse(configs, settings.topic_defaults)
    entries = []
    for name, setting in definitions(LogConfig).items():
        # A topic's own setting reads as it was written.
        value = configs.get(name, setting.format(getattr(config, setting.attribute)))
        synonyms = list(broker_synonyms(setting, settings, dynamic, all_units=all_units))
        if name in configs:
            synonyms.insert(0, Synonym(name, value, Source.TOPIC))
        entries.append(ConfigEntry(setting, name, value, False, synonyms))
    return entries


def broker_entries(settings: BrokerSettings, dynamic: BrokerConfigs) -> list[ConfigEntry]:
    """Return all settings of this broker."""
    effective = effective_settings(settings, dynamic)
    own = definitions(BrokerSettings)
    entries = []
    for name, setting in broker_settings().items():
        read_only = name not in dynamic_settings()
        if name in own:
            # An empty value means not set: Kafka's null, but for lists.
            is_list = setting.kind == "list"
            text = setting.format(getattr(effective, setting.attribute))
            value = text if text or is_list else None
            synonyms = list(_synonyms_of_names([name], settings, dynamic))
            if setting.secret:
                value = None
                synonyms = [replace(each, value=None) for each in synonyms]
            default = setting.format(setting.default)
            if default or is_list:
                synonyms.append(Synonym(name, default, Source.DEFAULT))
        else:
            synonyms = list(broker_synonyms(setting, settings, dynamic))
            value = setting.format(getattr(effective.topic_defaults, setting.attribute))
            if name != setting.synonyms[0][0]:
                synonyms = list(_synonyms_of_names([name], settings, dynamic))
                synonyms += _default_of(setting, name)
                value = synonyms[0].value if synonyms else None
            elif not synonyms:
                # Set in another unit it has a value there, and none here.
                value = None
        entries.append(ConfigEntry(setting, name, value, read_only, synonyms))
    return entries + list(_listener_entries(settings, dynamic))


def _listener_entries(settings: BrokerSettings, dynamic: BrokerConfigs) -> Iterator[ConfigEntry]:
    """Return the settings of single listeners that were set while the broker runs."""
    for name in dynamic.get(settings.node_id, {}):
        setting = listener_setting(name)
        if setting is not None:
            synonyms = list(_synonyms_of_names([name], settings, dynamic))
            if setting.secret:
                synonyms = [replace(each, value=None) for each in synonyms]
            yield ConfigEntry(setting, name, synonyms[0].value, False, synonyms)


def default_broker_entries(dynamic: BrokerConfigs) -> list[ConfigEntry]:
    """Return the dynamic settings that every broker has."""
    known = broker_settings()
    return [
        ConfigEntry(
            known[name], name, value, False, [Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER)]
        )
        for name, value in dynamic.get(None, {}).items()
        if name in known
    ]


def broker_synonyms(
    setting: Setting, settings: BrokerSettings, dynamic: BrokerConfigs, *, all_units: bool = False
) -> Iterator[Synonym]:
    """Return a broker's values for a topic's or group's setting, the strongest first, down to the
    default."""
    names = [name for name, _ in setting.synonyms]
    found = list(_synonyms_of_names(names, settings, dynamic))
    # Kafka shows nothing of the other units until the first of the names has a value itself.
    if len(names) > 1 and not all_units and all(each.name != names[0] for each in found):
        return
    yield from found
    if names and names[-1] not in _WITHOUT_DEFAULT:
        yield from _default_of(setting, names[-1])


def _default_of(setting: Setting, name: str) -> Iterator[Synonym]:
    """Yield the default under the last name of a setting, in the unit of that name."""
    last, factor = setting.synonyms[-1]
    if name == last:
        default = setting.default if factor == 1 else setting.default // factor
        yield Synonym(name, setting.format(default), Source.DEFAULT)


def _synonyms_of_names(
    names: list[str], settings: BrokerSettings, dynamic: BrokerConfigs
) -> Iterator[Synonym]:
    layers: list[tuple[Mapping[str, str], Source]] = [
        (dynamic.get(settings.node_id, {}), Source.DYNAMIC_BROKER),
        (dynamic.get(None, {}), Source.DYNAMIC_DEFAULT_BROKER),
        (settings.given, Source.STATIC_BROKER),
    ]
    for texts, source in layers:
        for name in names:
            if name in texts:
                yield Synonym(name, texts[name], source)
