from __future__ import annotations

import pytest

from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.asking import Asker, fresh_name

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16


def listed(asker: Asker, *types: int) -> set[tuple[int, str]]:
    answer = asker.ask(Api.LIST_CONFIG_RESOURCES, resource_types=types)
    assert answer.error_code == 0
    return {(each.resource_type, each.resource_name) for each in answer.config_resources}


def test_topics_and_brokers_are_listed(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    assert (TOPIC, name) in listed(asker)
    assert (BROKER, "0") in listed(asker)
    assert listed(asker, BROKER) == {(BROKER, "0")}
    assert (TOPIC, name) in listed(asker, TOPIC, TOPIC)
    assert {kind for kind, _ in listed(asker, TOPIC, BROKER)} == {TOPIC, BROKER}


def test_what_has_no_settings_here_is_not_listed(asker: Asker) -> None:
    assert listed(asker, CLIENT_METRICS, BROKER_LOGGER) == set()


def test_the_first_version_asks_for_client_metrics_only(asker: Asker) -> None:
    answer = asker.ask(Api.LIST_CONFIG_RESOURCES, 0)
    assert (answer.error_code, answer.config_resources) == (0, ())


@pytest.mark.parametrize("kind", [0, 1, 99, -1])
def test_a_type_that_nobody_knows_is_refused(asker: Asker, kind: int) -> None:
    answer = asker.ask(Api.LIST_CONFIG_RESOURCES, resource_types=[TOPIC, kind])
    assert answer.error_code == Error.UNSUPPORTED_VERSION
    assert not answer.config_resources


def test_all_that_is_listed_can_be_described(asker: Asker) -> None:
    asker.create(fresh_name())
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in listed(asker)
    ]
    answer = asker.ask(Api.DESCRIBE_CONFIGS, resources=resources)
    assert all(each.error_code == 0 and each.configs for each in answer.results)
