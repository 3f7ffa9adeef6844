"""Settings as the config APIs show them."""

from __future__ import annotations

from moldau.broker.config_entries import CONFIG_TYPES, Source, broker_entries, topic_entries
from moldau.broker.settings import BrokerSettings


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
