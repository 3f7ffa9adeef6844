"""Settings as the config APIs show them."""

from __future__ import annotations

from moldau.broker.api.topics.config_entries import (
    CONFIG_TYPES,
    Source,
    broker_entries,
    topic_entries,
)
from moldau.broker.settings.broker import BrokerSettings
from moldau.broker.settings.dynamic import BrokerConfigs


def test_a_topics_own_setting_reads_as_it_was_written() -> None:
    configs = {"preallocate": "TRUE", "retention.ms": " 1000 "}
    entries = {each.name: each for each in topic_entries(configs, BrokerSettings.parse({}), {})}
    for name, text in configs.items():
        assert entries[name].value == text
        assert entries[name].source is Source.TOPIC
    assert entries["segment.bytes"].value == str(1 << 30)


def test_hours_and_minutes_are_ints_as_in_kafka() -> None:
    entries = {each.name: each for each in broker_entries(BrokerSettings.parse({}), {})}
    for name in ("log.retention.hours", "log.retention.minutes", "log.roll.hours"):
        assert entries[name].config_type == CONFIG_TYPES["int"], name
    assert entries["log.retention.ms"].config_type == CONFIG_TYPES["long"]


def test_what_is_not_set_has_no_value_and_no_default() -> None:
    entries = {each.name: each for each in broker_entries(BrokerSettings.parse({}), {})}
    for name in ("broker.rack", "replica.selector.class", "log.retention.ms", "log.roll.ms"):
        assert (entries[name].value, entries[name].synonyms) == (None, []), name
        assert entries[name].source is Source.DEFAULT
    assert entries["log.flush.interval.ms"].value is None
    assert entries["log.retention.hours"].value == "168"


def test_other_units_are_shown_beside_a_value_in_milliseconds() -> None:
    given = BrokerSettings.parse({"log.roll.hours": "2", "log.retention.hours": "3"})
    dynamic: BrokerConfigs = {None: {"log.roll.ms": "5000"}}
    entries = {each.name: each for each in broker_entries(given, dynamic)}
    shown = [(each.name, each.value, each.source) for each in entries["log.roll.ms"].synonyms]
    assert shown == [
        ("log.roll.ms", "5000", Source.DYNAMIC_DEFAULT_BROKER),
        ("log.roll.hours", "2", Source.STATIC_BROKER),
        ("log.roll.hours", "168", Source.DEFAULT),
    ]
    assert (entries["log.roll.ms"].value, entries["log.roll.hours"].value) == ("5000", "2")
    assert (entries["log.retention.ms"].value, entries["log.retention.hours"].value) == (None, "3")
    topic = {each.name: each for each in topic_entries({}, given, dynamic)}
    assert (topic["segment.ms"].value, topic["retention.ms"].value) == ("5000", "10800000")
    assert topic["retention.ms"].source is Source.DEFAULT
    new = {each.name: each for each in topic_entries({}, given, dynamic, all_units=True)}
    assert new["retention.ms"].source is Source.STATIC_BROKER
