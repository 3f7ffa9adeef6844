from __future__ import annotations

from typing import Any

import pytest

from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.asking import Asker, fresh_name, versions

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
OF_TOPIC, OF_BROKER, OF_ALL_BROKERS, STATIC, DEFAULT = 1, 2, 3, 4, 5
OF_GROUP = 8


def describe(asker: Asker, kind: int, name: str, *keys: str, **more: Any) -> dict[str, Any]:
    """A resource's settings by name."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
    [result] = asker.ask(Api.DESCRIBE_CONFIGS, resources=[resource], **more).results
    assert result.error_code == 0, result
    return {config.name: config for config in result.configs}


def alter(asker: Asker, kind: int, name: str, configs: dict[str, str | None], **more: Any) -> Any:
    """The outcome of replacing a resource's settings."""
    pairs = [{"name": key, "value": value} for key, value in configs.items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": pairs}
    [outcome] = asker.ask(Api.ALTER_CONFIGS, resources=[resource], **more).responses
    return outcome


def increment(
    asker: Asker, kind: int, name: str, *edits: tuple[str, int, str | None], **more: Any
) -> Any:
    """The outcome of changing some of a resource's settings."""
    configs = [
        {"name": key, "config_operation": operation, "value": value}
        for key, operation, value in edits
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    [outcome] = asker.ask(Api.INCREMENTAL_ALTER_CONFIGS, resources=[resource], **more).responses
    return outcome


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_CONFIGS))
def test_a_topics_settings_are_described_in_every_version(asker: Asker, version: int) -> None:
    name = fresh_name()
    asker.create(name, retention_ms="5000")
    resource = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}
    [result] = asker.ask(
        Api.DESCRIBE_CONFIGS,
        version,
        resources=[resource],
        include_synonyms=True,
        include_documentation=True,
    ).results
    assert (result.error_code, result.error_message) == (0, "")
    assert (result.resource_type, result.resource_name) == (TOPIC, name)
    shown = {config.name: config for config in result.configs}
    retention = shown["retention.ms"]
    assert (retention.value, retention.config_source) == ("5000", OF_TOPIC)
    assert not retention.read_only
    assert not retention.is_sensitive
    assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
        ("retention.ms", "5000", OF_TOPIC),
    ]
    assert (shown["cleanup.policy"].value, shown["cleanup.policy"].config_source) == (
        "delete",
        DEFAULT,
    )
    if version >= 3:
        assert retention.config_type == 5
        assert shown["cleanup.policy"].config_type == 7
        assert shown["preallocate"].config_type == 1
        assert shown["segment.bytes"].config_type == 3
        assert "How long records are kept" in retention.documentation


def test_only_what_is_asked_for_is_described(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    shown = describe(asker, TOPIC, name, "retention.ms", "no.such.setting")
    assert list(shown) == ["retention.ms"]
    assert shown["retention.ms"].synonyms == ()
    assert shown["retention.ms"].documentation is None


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "nobody", Error.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "not/good", Error.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", Error.INVALID_REQUEST),
        (BROKER, "seven", Error.INVALID_REQUEST),
        (GROUP, "", Error.INVALID_REQUEST),
        (CLIENT_METRICS, "", Error.INVALID_REQUEST),
        (99, "x", Error.INVALID_REQUEST),
    ],
)
def test_what_does_not_exist_is_not_described(
    asker: Asker, kind: int, name: str, error: Error
) -> None:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    [result] = asker.ask(Api.DESCRIBE_CONFIGS, resources=[resource]).results
    assert result.error_code == error
    assert result.error_message
    assert result.configs == ()


@pytest.mark.moldau({"log.retention.hours": "2", "num.partitions": "3"})
def test_a_brokers_settings_tell_given_ones_from_defaults(moldau_broker: Broker) -> None:
    with Asker(moldau_broker) as asker:
        shown = describe(asker, BROKER, "0", include_synonyms=True)
        assert (shown["num.partitions"].value, shown["num.partitions"].config_source) == (
            "3",
            STATIC,
        )
        assert shown["num.partitions"].read_only
        assert shown["log.retention.ms"].value is None
        assert not shown["log.retention.ms"].read_only
        assert shown["log.retention.hours"].value == "2"
        assert shown["log.retention.hours"].read_only
        assert shown["delete.topic.enable"].config_source == DEFAULT
        asker.create("a")
        [retention] = describe(asker, TOPIC, "a", "retention.ms", include_synonyms=True).values()
        # As in Kafka, which looks for other units only beside a value in milliseconds.
        assert (retention.value, retention.config_source) == (str(2 * 3_600_000), DEFAULT)
        assert retention.synonyms == ()


@pytest.mark.parametrize("version", versions(Api.ALTER_CONFIGS))
def test_altering_replaces_all_settings_in_every_version(asker: Asker, version: int) -> None:
    name = fresh_name()
    asker.create(name, retention_ms="5000")
    assert alter(asker, TOPIC, name, {"segment.ms": "7000"}, version=version).error_code == 0
    shown = describe(asker, TOPIC, name)
    assert (shown["segment.ms"].value, shown["segment.ms"].config_source) == ("7000", OF_TOPIC)
    assert shown["retention.ms"].config_source == DEFAULT


@pytest.mark.parametrize("version", versions(Api.INCREMENTAL_ALTER_CONFIGS))
def test_incremental_changes_leave_the_rest_alone_in_every_version(
    asker: Asker, version: int
) -> None:
    name = fresh_name()
    asker.create(name, retention_ms="5000", segment_ms="6000")
    outcome = increment(
        asker,
        TOPIC,
        name,
        ("segment.ms", DELETE, None),
        ("flush.ms", SET, "9"),
        ("cleanup.policy", APPEND, "compact"),
        version=version,
    )
    assert outcome.error_code == 0, outcome
    shown = describe(asker, TOPIC, name)
    own = {key: each.value for key, each in shown.items() if each.config_source == OF_TOPIC}
    assert own == {"retention.ms": "5000", "flush.ms": "9", "cleanup.policy": "delete,compact"}
    increment(asker, TOPIC, name, ("cleanup.policy", SUBTRACT, "delete"), version=version)
    assert describe(asker, TOPIC, name)["cleanup.policy"].value == "compact"


def test_validating_changes_nothing(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    assert alter(asker, TOPIC, name, {"flush.ms": "1"}, validate_only=True).error_code == 0
    edit = ("flush.ms", SET, "1")
    assert increment(asker, TOPIC, name, edit, validate_only=True).error_code == 0
    refused = increment(asker, TOPIC, name, ("flush.ms", SET, "x"), validate_only=True)
    assert refused.error_code == Error.INVALID_CONFIG
    assert describe(asker, TOPIC, name)["flush.ms"].config_source == DEFAULT


def test_one_bad_setting_keeps_all_of_its_resource_from_changing(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    for bad in (("segment.ms", SET, "0"), ("nope", SET, "1"), ("flush.ms", APPEND, "1")):
        outcome = increment(asker, TOPIC, name, ("retention.ms", SET, "5"), bad)
        assert outcome.error_code == Error.INVALID_CONFIG
        assert bad[0] in outcome.error_message
    assert describe(asker, TOPIC, name)["retention.ms"].config_source == DEFAULT


@pytest.mark.parametrize(
    ("kind", "name", "edit", "error"),
    [
        (TOPIC, "nobody", ("flush.ms", SET, "1"), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "not/good", ("flush.ms", SET, "1"), Error.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ("flush.ms", SET, "1"), Error.INVALID_REQUEST),
        (TOPIC, "nobody", ("flush.ms", SET, None), Error.INVALID_REQUEST),
        (TOPIC, "nobody", ("flush.ms", 9, "1"), Error.INVALID_REQUEST),
        (BROKER, "7", ("max.connections", SET, "10"), Error.INVALID_REQUEST),
        (BROKER, "x", ("max.connections", SET, "10"), Error.INVALID_REQUEST),
        (BROKER, "0", ("node.id", SET, "10"), Error.INVALID_REQUEST),
        (BROKER, "0", ("log.retention.hours", SET, "10"), Error.INVALID_REQUEST),
        (BROKER, "0", ("max.connections", SET, "-5"), Error.INVALID_REQUEST),
        (BROKER, "0", ("no.such.setting", SET, "1"), Error.INVALID_CONFIG),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "44999"), Error.INVALID_CONFIG),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "60001"), Error.INVALID_CONFIG),
        (GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "x"), Error.INVALID_CONFIG),
        (GROUP, "g", ("no.such.setting", SET, "1"), Error.INVALID_CONFIG),
        (GROUP, "g", ("a", APPEND, "1"), Error.INVALID_CONFIG),
        (GROUP, "", ("a", DELETE, None), Error.INVALID_REQUEST),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "1000"), Error.INVALID_REQUEST),
        (CLIENT_METRICS, "", ("a", DELETE, None), Error.INVALID_REQUEST),
        (99, "x", ("a", SET, "1"), Error.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_altered_is_refused(
    asker: Asker, kind: int, name: str, edit: tuple[str, int, str | None], error: Error
) -> None:
    outcome = increment(asker, kind, name, edit)
    assert outcome.error_code == error
    assert outcome.error_message


def test_client_metrics_have_no_settings(asker: Asker) -> None:
    kind = CLIENT_METRICS
    assert describe(asker, kind, "any") == {}
    assert alter(asker, kind, "any", {}).error_code == 0
    assert increment(asker, kind, "any", ("a", DELETE, None)).error_code == 0
    for outcome in (
        alter(asker, kind, "any", {"a": "1"}, validate_only=True),
        increment(asker, kind, "any", ("a", SET, "1")),
    ):
        assert outcome.error_code == Error.INVALID_REQUEST
        assert "has no settings here: a" in outcome.error_message
    assert describe(asker, kind, "any") == {}


def test_a_groups_settings_override_its_brokers_and_outlive_a_restart(
    moldau_broker: Broker,
) -> None:
    timeout, group = "consumer.session.timeout.ms", "a group/of 2"
    with Asker(moldau_broker) as asker:
        entry = describe(asker, GROUP, group)[timeout]
        assert (entry.value, entry.config_source) == ("45000", DEFAULT)
        refused = alter(asker, GROUP, group, {timeout: "1"}, validate_only=True)
        assert refused.error_code == Error.INVALID_CONFIG
        assert increment(asker, GROUP, group, (timeout, SET, "50000")).error_code == 0
    moldau_broker.stop()
    moldau_broker.start()
    with Asker(moldau_broker) as asker:
        entry = describe(asker, GROUP, group, timeout)[timeout]
        assert (entry.value, entry.config_source) == ("50000", OF_GROUP)
        listed = asker.ask(Api.LIST_CONFIG_RESOURCES, resource_types=[GROUP])
        assert [each.resource_name for each in listed.config_resources] == [group]
        assert alter(asker, GROUP, group, {}).error_code == 0
        assert describe(asker, GROUP, group)[timeout].value == "45000"
        listed = asker.ask(Api.LIST_CONFIG_RESOURCES, resource_types=[GROUP])
        assert not listed.config_resources


def test_a_resource_or_a_setting_named_twice_is_refused(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    twice = increment(asker, TOPIC, name, ("flush.ms", SET, "1"), ("flush.ms", SET, "2"))
    assert twice.error_code == Error.INVALID_REQUEST
    resource = {
        "resource_type": TOPIC,
        "resource_name": name,
        "configs": [{"name": "flush.ms", "value": "1"}],
    }
    other = fresh_name()
    asker.create(other)
    answer = asker.ask(
        Api.ALTER_CONFIGS, resources=[resource, resource | {"resource_name": other}, resource]
    )
    codes = [outcome.error_code for outcome in answer.responses]
    assert codes == [Error.INVALID_REQUEST, 0, Error.INVALID_REQUEST]
    assert describe(asker, TOPIC, name)["flush.ms"].config_source == DEFAULT
    assert describe(asker, TOPIC, other)["flush.ms"].config_source == OF_TOPIC


def test_broker_settings_are_layered_and_outlive_a_restart(moldau_broker: Broker) -> None:
    with Asker(moldau_broker) as asker:
        asker.create("a")
        for name, value in (("", "60000"), ("0", "30000")):
            edit = ("log.retention.ms", SET, value)
            assert increment(asker, BROKER, name, edit).error_code == 0
        assert set(describe(asker, BROKER, "")) == {"log.retention.ms"}
    moldau_broker.stop()
    moldau_broker.start()
    with Asker(moldau_broker) as asker:
        shown = describe(asker, BROKER, "0", "log.retention.ms", include_synonyms=True)
        retention = shown["log.retention.ms"]
        assert retention.value == "30000"
        assert [(each.value, each.source) for each in retention.synonyms] == [
            ("30000", OF_BROKER),
            ("60000", OF_ALL_BROKERS),
            ("168", DEFAULT),
        ]
        assert describe(asker, TOPIC, "a")["retention.ms"].value == "30000"
        assert increment(asker, BROKER, "0", ("log.retention.ms", DELETE, None)).error_code == 0
        assert describe(asker, TOPIC, "a")["retention.ms"].config_source == OF_ALL_BROKERS


def test_a_changed_topic_setting_counts_from_the_next_message_on(
    moldau_session_broker: Broker, asker: Asker
) -> None:
    from confluent_kafka import KafkaError, Producer

    name = fresh_name()
    asker.create(name)
    producer = Producer({"bootstrap.servers": moldau_session_broker.bootstrap, "linger.ms": 0})
    outcomes: list[Any] = []

    def send() -> Any:
        producer.produce(name, b"x" * 5000, callback=lambda error, _: outcomes.append(error))
        producer.flush(60)
        return outcomes[-1]

    assert send() is None
    increment(asker, TOPIC, name, ("max.message.bytes", SET, "1000"))
    assert send().code() == KafkaError.MSG_SIZE_TOO_LARGE
    increment(asker, TOPIC, name, ("max.message.bytes", DELETE, None))
    assert send() is None


def test_a_changed_broker_setting_reaches_topics_that_have_none(moldau_broker: Broker) -> None:
    from confluent_kafka import KafkaError, Producer

    with Asker(moldau_broker) as asker:
        asker.create("plain")
        asker.create("own", max_message_bytes="100000")
        edit = ("message.max.bytes", SET, "1000")
        assert increment(asker, BROKER, "", edit).error_code == 0
    outcomes: dict[Any, Any] = {}
    producer = Producer({"bootstrap.servers": moldau_broker.bootstrap})
    for name in ("plain", "own"):
        producer.produce(
            name,
            b"x" * 5000,
            callback=lambda error, message: outcomes.update({message.topic(): error}),
        )
    producer.flush(60)
    assert outcomes["own"] is None
    assert outcomes["plain"].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_confluents_admin_client_describes_and_alters(moldau_session_broker: Broker) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewTopic,
    )

    admin = AdminClient({"bootstrap.servers": moldau_session_broker.bootstrap})
    name = fresh_name()
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    edit = ConfigEntry("retention.ms", "1234", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[edit])
    admin.incremental_alter_configs([resource])[resource].result(60)
    asked = ConfigResource(ConfigResource.Type.TOPIC, name)
    assert admin.describe_configs([asked])[asked].result(60)["retention.ms"].value == "1234"
    brokers = ConfigResource(ConfigResource.Type.BROKER, "0")
    assert "num.partitions" in admin.describe_configs([brokers])[brokers].result(60)


def test_kafka_pythons_admin_client_describes_and_alters(moldau_session_broker: Broker) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=moldau_session_broker.bootstrap)
    try:
        name = fresh_name()
        admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1}})
        configs = {"retention.ms": "1234"}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs=configs)])
        asked = ConfigResource(ConfigResourceType.TOPIC, name)
        assert "1234" in str(admin.describe_configs([asked]))
    finally:
        admin.close()
