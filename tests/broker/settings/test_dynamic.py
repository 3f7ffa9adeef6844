from __future__ import annotations

import pytest
from msgspec.structs import replace

from moldau.broker.settings.broker import BrokerSettings
from moldau.broker.settings.dynamic import (
    broker_settings,
    dynamic_settings,
    effective_settings,
    with_dynamic,
)
from moldau.settings import InvalidSetting

GIVEN = BrokerSettings.parse({"log.retention.hours": "1", "max.connections": "50", "node.id": "3"})


def test_a_brokers_own_value_beats_that_of_all_which_beats_what_was_given() -> None:
    configs: dict[int | None, dict[str, str]] = {None: {"max.connections": "60"}}
    assert effective_settings(GIVEN, {}).max_connections == 50
    assert effective_settings(GIVEN, configs).max_connections == 60
    configs[3] = {"max.connections": "70"}
    configs[4] = {"max.connections": "80"}
    assert effective_settings(GIVEN, configs).max_connections == 70


def test_a_removed_value_goes_back_to_what_was_given() -> None:
    changed = effective_settings(GIVEN, {None: {"max.connections": "60", "log.retention.ms": "5"}})
    assert changed.topic_defaults.retention_ms == 5
    assert effective_settings(changed, {}) == GIVEN


def test_settings_that_are_not_dynamic_stay_as_they_were_made() -> None:
    limited = replace(GIVEN, max_open_files=77)
    assert effective_settings(limited, {None: {"max.connections": "1"}}).max_open_files == 77


def test_a_default_of_topics_in_milliseconds_beats_one_in_hours() -> None:
    assert GIVEN.topic_defaults.retention_ms == 3_600_000
    changed = with_dynamic(GIVEN, {None: {"log.retention.ms": "-1"}})
    assert changed.topic_defaults.retention_ms == -1


def test_what_this_version_cannot_take_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    configs: dict[int | None, dict[str, str]] = {
        None: {
            "from.the.future": "1",
            "node.id": "9",
            "max.connections": "many",
            "log.cleaner.max.compaction.lag.ms": "5",
            "log.cleaner.min.compaction.lag.ms": "9",
            "log.retention.ms": "8",
        }
    }
    changed = effective_settings(GIVEN, configs)
    assert changed.node_id == 3
    assert changed.max_connections == 50
    assert changed.topic_defaults.max_compaction_lag_ms == 5
    assert changed.topic_defaults.min_compaction_lag_ms == 0
    assert changed.topic_defaults.retention_ms == 8
    assert len(caplog.records) == 4


def test_settings_that_contradict_each_other_are_refused() -> None:
    configs = {
        None: {"log.cleaner.max.compaction.lag.ms": "5"},
        3: {"log.cleaner.min.compaction.lag.ms": "9"},
    }
    with pytest.raises(InvalidSetting):
        with_dynamic(GIVEN, configs)


def test_every_dynamic_setting_is_a_setting() -> None:
    assert dynamic_settings() <= broker_settings().keys()
    assert {"log.retention.ms", "max.connections"} <= dynamic_settings()
    assert not {"log.retention.hours", "node.id", "log.dirs"} & dynamic_settings()
