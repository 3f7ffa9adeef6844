"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, and the defaults of everything."""

from __future__ import annotations

from typing import Any

from conformance.registry import case, scenario
from conformance.session import Session
from moldau.wire.apis import Api

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3


@case(Api.DESCRIBE_CONFIGS)
def descriptions(s: Session, version: int) -> None:
    name = s.topic(configs={"retention.ms": "1234", "cleanup.policy": "compact,delete"})

    def describe(what: str, *resources: tuple[int, str, Any], **more: Any) -> None:
        given = [
            {"resource_type": kind, "resource_name": resource, "configuration_keys": keys}
            for kind, resource, keys in resources
        ]
        s.ask(what, Api.DESCRIBE_CONFIGS, version, resources=given, **more)

    some = ["retention.ms", "cleanup.policy", "segment.bytes", "max.message.bytes"]
    describe("some", (TOPIC, name, some))
    describe("with synonyms", (TOPIC, name, some), include_synonyms=True)
    describe("with documentation", (TOPIC, name, some), include_documentation=True)
    describe("no keys", (TOPIC, name, []))
    describe("unknown keys", (TOPIC, name, ["nonsense", "retention.ms"]))
    describe("a key twice", (TOPIC, name, ["retention.ms", "retention.ms"]))
    describe("an unknown topic", (TOPIC, s.name("unknown"), None))
    describe("an empty topic name", (TOPIC, "", None))
    describe("a bad topic name", (TOPIC, "a b", None))
    describe("a topic twice", (TOPIC, name, some[:1]), (TOPIC, name, some[1:2]))
    describe("another broker", (BROKER, "77", None))
    describe("not a broker id", (BROKER, "one", None))
    describe("all brokers", (BROKER, "", ["log.retention.ms", "message.max.bytes"]))
    keys = ["num.partitions", "message.max.bytes", "log.retention.hours", "log.retention.ms"]
    describe("this broker", (BROKER, "1", keys), include_synonyms=True)
    describe("an unknown type", (99, "x", None))
    describe("type zero", (0, "x", None))
    describe("an unknown group", (GROUP, s.name("unknown"), []))
    describe("a group without a name", (GROUP, "", []))
    describe("an unknown client subscription", (CLIENT_METRICS, "x", []))
    describe("a client subscription without a name", (CLIENT_METRICS, "", []))
    describe("the loggers of another broker", (BROKER_LOGGER, "77", []))
    describe("the loggers of nobody", (BROKER_LOGGER, "", []))
    describe("a topic and a broker", (TOPIC, name, some[:1]), (BROKER, "1", keys[:1]))
    describe("nothing")


@case(Api.ALTER_CONFIGS)
def whole_sets(s: Session, version: int) -> None:
    name = s.topic(configs={"retention.ms": "1234", "segment.bytes": "2000000"})

    def alter(
        what: str, *resources: tuple[int, str, list[tuple[str, str | None]]], **more: Any
    ) -> None:
        given = [
            {
                "resource_type": kind,
                "resource_name": resource,
                "configs": [{"name": key, "value": value} for key, value in pairs],
            }
            for kind, resource, pairs in resources
        ]
        s.ask(what, Api.ALTER_CONFIGS, version, resources=given, **more)
        s.settle()
        _show(s, f"after {what}", name)

    alter("only checked", (TOPIC, name, [("retention.ms", "9")]), validate_only=True)
    alter("replaced", (TOPIC, name, [("retention.bytes", "5000")]))
    alter("null", (TOPIC, name, [("retention.ms", None)]))
    alter("unknown", (TOPIC, name, [("nonsense", "1")]))
    alter("not a number", (TOPIC, name, [("retention.ms", "x")]))
    alter("one of two bad", (TOPIC, name, [("retention.ms", "7"), ("nonsense", "1")]))
    alter("a key twice", (TOPIC, name, [("retention.ms", "7"), ("retention.ms", "8")]))
    # Kafka fails inside and forgets to answer.
    alter(
        "a resource twice",
        (TOPIC, name, [("retention.ms", "7")]),
        (TOPIC, name, []),
        patience_s=0.3,
    )
    alter("an unknown topic", (TOPIC, s.name("unknown"), [("retention.ms", "7")]))
    alter("an empty name", (TOPIC, "", [("retention.ms", "7")]))
    alter("another broker", (BROKER, "77", [("log.retention.ms", "7")]))
    alter("not a broker", (BROKER, "one", [("log.retention.ms", "7")]))
    alter("a broker setting that is fixed", (BROKER, "1", [("node.id", "7")]))
    alter("a logger", (BROKER_LOGGER, "1", [("kafka.nonsense", "INFO")]))
    alter("an unknown type", (99, "x", []))
    for kind, what in ((GROUP, "group"), (CLIENT_METRICS, "subscription")):
        alter(f"nothing of a {what}", (kind, "x", []))
        alter(f"a {what} without a name", (kind, "", []))
        alter(f"an unknown setting of a {what}", (kind, "x", [("nonsense", "1")]))
    alter("all gone", (TOPIC, name, []))
    alter("nothing")


@case(Api.INCREMENTAL_ALTER_CONFIGS)
def single_settings(s: Session, version: int) -> None:
    name = s.topic(configs={"retention.ms": "1234", "cleanup.policy": "compact"})
    Pairs = list[tuple[str, int, str | None]]

    def alter(what: str, *resources: tuple[int, str, Pairs], **more: Any) -> None:
        given = [
            {
                "resource_type": kind,
                "resource_name": resource,
                "configs": [
                    {"name": key, "config_operation": operation, "value": value}
                    for key, operation, value in changes
                ],
            }
            for kind, resource, changes in resources
        ]
        s.ask(what, Api.INCREMENTAL_ALTER_CONFIGS, version, resources=given, **more)
        s.settle()
        _show(s, f"after {what}", name)

    alter("only checked", (TOPIC, name, [("retention.ms", _SET, "9")]), validate_only=True)
    alter("set", (TOPIC, name, [("retention.bytes", _SET, "5000")]))
    alter("deleted", (TOPIC, name, [("retention.ms", _DELETE, None)]))
    alter("deleted again", (TOPIC, name, [("retention.ms", _DELETE, "x")]))
    alter("appended", (TOPIC, name, [("cleanup.policy", _APPEND, "delete")]))
    alter("appended again", (TOPIC, name, [("cleanup.policy", _APPEND, "delete")]))
    alter("appended nonsense", (TOPIC, name, [("cleanup.policy", _APPEND, "nonsense")]))
    alter("subtracted", (TOPIC, name, [("cleanup.policy", _SUBTRACT, "compact")]))
    alter("subtracted what is not there", (TOPIC, name, [("cleanup.policy", _SUBTRACT, "compact")]))
    alter("subtracted the last", (TOPIC, name, [("cleanup.policy", _SUBTRACT, "delete")]))
    alter("appended to no list", (TOPIC, name, [("retention.ms", _APPEND, "1")]))
    alter("an unknown operation", (TOPIC, name, [("retention.ms", 9, "1")]))
    alter("set to null", (TOPIC, name, [("retention.ms", _SET, None)]))
    alter("unknown", (TOPIC, name, [("nonsense", _SET, "1")]))
    alter("unknown, deleted", (TOPIC, name, [("nonsense", _DELETE, None)]))
    alter("not a number", (TOPIC, name, [("retention.ms", _SET, "x")]))
    alter("one of two bad", (TOPIC, name, [("retention.ms", _SET, "7"), ("nonsense", _SET, "1")]))
    alter("a key twice", (TOPIC, name, [("retention.ms", _SET, "7"), ("retention.ms", _SET, "8")]))
    alter("a resource twice", (TOPIC, name, [("retention.ms", _SET, "7")]), (TOPIC, name, []))
    alter("an unknown topic", (TOPIC, s.name("unknown"), [("retention.ms", _SET, "7")]))
    alter("an empty name", (TOPIC, "", [("retention.ms", _SET, "7")]))
    alter("another broker", (BROKER, "77", [("log.retention.ms", _SET, "7000000")]))
    alter("not a broker", (BROKER, "one", [("log.retention.ms", _SET, "7000000")]))
    alter("a broker setting that is fixed", (BROKER, "1", [("node.id", _SET, "7")]))
    alter("an unknown broker setting", (BROKER, "1", [("nonsense", _SET, "7")]))
    alter("a broker setting", (BROKER, "1", [("log.retention.ms", _SET, "700000000")]))
    _show_broker(s, "this broker", "1")
    alter("a setting of all brokers", (BROKER, "", [("log.retention.ms", _SET, "800000000")]))
    _show_broker(s, "this broker among all", "1")
    _show_broker(s, "all brokers", "")
    alter("this broker's gone", (BROKER, "1", [("log.retention.ms", _DELETE, None)]))
    _show_broker(s, "this broker after that", "1")
    alter("all brokers' gone", (BROKER, "", [("log.retention.ms", _DELETE, None)]))
    alter("two, one of them bad", (TOPIC, name, [("nonsense", _SET, "1")]), (BROKER, "", []))
    alter("a logger of another broker", (BROKER_LOGGER, "77", [("kafka", _SET, "INFO")]))
    alter("an unknown type", (99, "x", []))
    for kind, what in ((GROUP, "group"), (CLIENT_METRICS, "subscription")):
        alter(f"nothing of a {what}", (kind, "x", []))
        alter(f"a {what} without a name", (kind, "", []))
        alter(f"an unknown setting of a {what}", (kind, "x", [("nonsense", _SET, "1")]))
        alter(f"appended to a {what}", (kind, "x", [("nonsense", _APPEND, "1")]))
        alter(f"deleted of a {what}", (kind, "x", [("nonsense", _DELETE, None)]))
    alter("nothing", (TOPIC, name, []))


def _show(s: Session, what: str, name: str) -> None:
    """The settings that the topic has of its own, once the broker shows what it was told."""
    s.note(what, _own(s, TOPIC, name), Api.DESCRIBE_CONFIGS)


def _show_broker(s: Session, what: str, name: str) -> None:
    given = [
        {"resource_type": BROKER, "resource_name": name, "configuration_keys": ["log.retention.ms"]}
    ]
    answer = s.quietly(Api.DESCRIBE_CONFIGS, 4, resources=given, include_synonyms=True)
    s.note(what, answer, Api.DESCRIBE_CONFIGS)


def _own(s: Session, kind: int, name: str) -> dict[str, str]:
    given = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
    answer = s.quietly(Api.DESCRIBE_CONFIGS, 4, resources=given)
    return {each.name: each.value for each in answer.results[0].configs if each.config_source == 1}


@case(Api.LIST_CONFIG_RESOURCES)
def resources(s: Session, version: int) -> None:
    name = s.topic()
    for types in (
        [],
        [TOPIC],
        [BROKER],
        [BROKER_LOGGER],
        [CLIENT_METRICS],
        [GROUP],
        [TOPIC, TOPIC],
    ):
        answer = s.quietly(Api.LIST_CONFIG_RESOURCES, version, resource_types=types)
        found = [
            (getattr(each, "resource_type", CLIENT_METRICS), each.resource_name)
            for each in answer.config_resources
            # The topics of other cases are there for a while after they were deleted.
            if getattr(each, "resource_type", CLIENT_METRICS) != TOPIC or each.resource_name == name
        ]
        s.note(f"types {types}", (answer.error_code, sorted(found)), Api.LIST_CONFIG_RESOURCES)
    for types in ([99], [0], [1], [TOPIC, 3]):
        s.ask(f"types {types}", Api.LIST_CONFIG_RESOURCES, version, resource_types=types)


@scenario("Defaults")
def of_topics(s: Session) -> None:
    name = s.topic()
    _describe_all(s, TOPIC, name)


@scenario("Defaults")
def of_the_broker(s: Session) -> None:
    _describe_all(s, BROKER, "1")


def _describe_all(s: Session, kind: int, name: str) -> None:
    given = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
    answer = s.quietly(Api.DESCRIBE_CONFIGS, 4, resources=given, include_synonyms=True)
    configs = s.symbols.plain(answer)["results"][0]["configs"]
    for entry in configs.values():
        entry.pop("documentation")
    s.note("settings", configs)
