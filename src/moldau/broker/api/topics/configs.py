"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, of topics, brokers and groups.

Client metrics subscriptions can be named as well. Kafka's settings for them belong to a protocol
that is not there (KIP-714), so each has none, and none can be set.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from enum import IntEnum
from typing import Any

import msgspec

from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import Right, on_groups, on_topics, refusal
from moldau.broker.api.topics.config_entries import (
    ConfigEntry,
    broker_entries,
    default_broker_entries,
    topic_entries,
)
from moldau.broker.api.topics.group_configs import alter_group_configs, group_entries
from moldau.broker.api.topics.listener_configs import check_listeners, names_listeners
from moldau.broker.api.topics.parts import TopicParts, handles
from moldau.broker.api.topics.quarantine_rights import within_rights
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation, Resource
from moldau.broker.settings.broker import BrokerSettings
from moldau.broker.settings.dynamic import (
    broker_settings,
    dynamic_settings,
    listener_setting,
    with_dynamic,
)
from moldau.broker.settings.group_config import GroupConfig
from moldau.broker.settings.security import PREFIX
from moldau.broker.slices import Slices
from moldau.cluster.decisions.configs import Edit, edited
from moldau.cluster.decisions.configs import Operation as ConfigOperation
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.topics import InvalidTopicName, check_topic_name
from moldau.log.config import LogConfig
from moldau.settings import InvalidSetting, Setting, definitions, unknown
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.messages import decode_request, decode_response, encode_request

Configs = dict[str, str]
Change = Callable[[Configs], Configs]


class ResourceType(IntEnum):
    """The kinds of resources that have settings, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


# Resources without settings here, with Kafka's error for one that does not exist.
_WITHOUT_SETTINGS = {
    ResourceType.CLIENT_METRICS: (Error.INVALID_REQUEST, "client metrics subscription"),
}

# Where rights are on the resource itself; all others are on the cluster.
_PROTECTED_AS: Mapping[int, Resource] = {
    ResourceType.TOPIC: Resource.TOPIC,
    ResourceType.GROUP: Resource.GROUP,
}

_ALTER = Operation.ALTER_CONFIGS
# How many are described before the loop serves others again.
_RESOURCES_AT_A_TIME = 5


def _on_resources(operation: Operation) -> tuple[Right, ...]:
    """Rights on the topics and groups that a request names; on the cluster for everything else."""
    return (on_topics(operation), on_groups(operation), Right(operation, Resource.CLUSTER))


def _denied(request: Request, resource: Any, operation: Operation) -> ClusterError | None:
    """Return the error for a resource that who asks has no right to."""
    name = resource.resource_name
    kind = _PROTECTED_AS.get(resource.resource_type, Resource.CLUSTER)
    if kind is Resource.CLUSTER:
        return None if request.may_on_cluster(operation) else refusal(kind)
    return None if request.may(operation, kind, name) else refusal(kind)


@handles(Api.DESCRIBE_CONFIGS, (1, 4), *_on_resources(Operation.DESCRIBE_CONFIGS))
async def describe_configs(parts: TopicParts, request: Request) -> Answer:
    """Return the settings of each resource, all or those named; a few at a time, since each has
    dozens."""
    body = request.body
    results: list[dict[str, Any]] = []
    denied: list[dict[str, Any]] = []
    slices = Slices()
    for count, resource in enumerate(body.resources):
        if count % _RESOURCES_AT_A_TIME == _RESOURCES_AT_A_TIME - 1:
            await slices.rest()
        result: dict[str, Any] = _named(resource)
        refused = _denied(request, resource, Operation.DESCRIBE_CONFIGS)
        if refused is not None:
            denied.append(result | _outcome(refused))
            continue
        try:
            entries = _entries(parts, resource)
        except ClusterError as error:
            result |= _outcome(error)
        else:
            keys = resource.configuration_keys
            result["error_message"] = ""
            result["configs"] = [
                _described(entry, body)
                for entry in sorted(entries, key=lambda entry: entry.name)
                if not keys or entry.name in keys
            ]
        results.append(result)
    return {"results": results + denied}


def _entries(parts: TopicParts, resource: Any) -> list[ConfigEntry]:
    kind, name = resource.resource_type, resource.resource_name
    dynamic = parts.node.state.broker_configs
    if kind == ResourceType.TOPIC:
        try:
            check_topic_name(name)
        except InvalidTopicName as error:
            raise ClusterError(Error.INVALID_TOPIC_EXCEPTION, str(error)) from error
        topic = parts.node.state.topics.get(name)
        if topic is None:
            raise ClusterError(
                Error.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic named '{name}'."
            )
        return topic_entries(topic.configs, parts.node.settings, dynamic)
    if kind == ResourceType.BROKER:
        if not name:
            return default_broker_entries(dynamic)
        _check_broker_id(parts.node.id, name)
        return broker_entries(parts.node.settings, dynamic)
    if kind == ResourceType.GROUP:
        return group_entries(parts, name, resource.configuration_keys)
    if kind in _WITHOUT_SETTINGS:
        _check_without_settings(kind, name, {})
        return []
    raise ClusterError(Error.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def _described(entry: ConfigEntry, body: Any) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "read_only": entry.read_only,
        "config_source": entry.source,
        "config_type": entry.config_type,
        "is_sensitive": entry.setting.secret,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source}
            for synonym in entry.synonyms
        ]
        if body.include_synonyms
        else (),
        "documentation": entry.setting.doc
        if getattr(body, "include_documentation", False)
        else None,
    }


def _refuse(request: Request, error: ClusterError) -> Answer:
    return {"responses": [_named(each) | _outcome(error) for each in request.body.resources]}


def _named(resource: Any) -> dict[str, Any]:
    return {"resource_type": resource.resource_type, "resource_name": resource.resource_name}


async def _at_controller(
    parts: TopicParts, request: Request, change_of: Callable[[Any], Change]
) -> Answer:
    """Return the controller's answer, but for the settings of brokers other than the one that was
    asked.

    Those are refused by whoever was asked: the controller does not know who that was.
    """

    def alter(request: Request) -> Awaitable[Answer]:
        return _alter(parts, request, change_of)

    is_active = parts.controller.is_active
    relay = parts.forwarding.relay
    kept, refused = [], []
    for resource in request.body.resources:
        try:
            if resource.resource_type == ResourceType.BROKER and resource.resource_name:
                if not is_active:
                    _check_broker_id(parts.node.id, resource.resource_name)
                # Who may not change them learns nothing of the broker's files, either.
                if names_listeners(resource) and _denied(request, resource, _ALTER) is None:
                    await check_listeners(parts, resource, change_of(resource))
        except ClusterError as error:
            refused.append(_named(resource) | _outcome(error))
        else:
            kept.append(resource)
    if not refused or parts.forwarding.was_forwarded(request):
        return await (alter(request) if is_active else relay(request, alter, _refuse))
    if not kept:
        return {"responses": refused}
    api, version = request.api, request.version
    values = {
        "resources": [asdict(resource) for resource in kept],
        "validate_only": request.body.validate_only,
    }
    raw = encode_request(api, version, values)
    body = decode_request(api, version, memoryview(raw))
    fewer = msgspec.structs.replace(request, raw=raw, body=body)
    answer = await (alter(fewer) if is_active else relay(fewer, alter, _refuse))
    if not isinstance(answer, dict):
        found = decode_response(api, version, memoryview(answer)).responses
        answer = {"responses": [asdict(each) for each in found]}
    return {"responses": [*refused, *answer["responses"]]}


@handles(Api.ALTER_CONFIGS, (0, 2), *_on_resources(_ALTER), forwardable=True)
async def alter_configs(parts: TopicParts, request: Request) -> Answer:
    """Replace each resource's settings: what is not mentioned goes back to its default."""

    def replacement(resource: Any) -> Change:
        configs = {config.name: config.value for config in resource.configs}
        _check_values(resource, [name for name, value in configs.items() if value is None])
        return lambda current: configs

    return await _at_controller(parts, request, replacement)


@handles(Api.INCREMENTAL_ALTER_CONFIGS, (0, 1), *_on_resources(_ALTER), forwardable=True)
async def incremental_alter_configs(parts: TopicParts, request: Request) -> Answer:
    """Change the settings that are mentioned, and leave each resource's others alone."""

    def increment(resource: Any) -> Change:
        edits = _edits(resource)
        known: Mapping[str, Setting] = {}
        if resource.resource_type == ResourceType.BROKER:
            known = broker_settings()
        elif resource.resource_type == ResourceType.TOPIC:
            known = definitions(LogConfig)
        elif resource.resource_type == ResourceType.GROUP:
            known = definitions(GroupConfig)
        return lambda current: edited(
            current, edits, known, lambda name: _current_default(parts, known[name])
        )

    return await _at_controller(parts, request, increment)


def _current_default(parts: TopicParts, setting: Setting) -> str:
    own = setting.name in definitions(BrokerSettings)
    values = parts.node.settings if own else parts.node.settings.topic_defaults
    return setting.format(getattr(values, setting.attribute))


def _edits(resource: Any) -> list[Edit]:
    edits = []
    for config in resource.configs:
        try:
            operation = ConfigOperation(config.config_operation)
        except ValueError:
            raise ClusterError(
                Error.INVALID_REQUEST, f"Unknown operations type {config.config_operation}"
            ) from None
        edits.append(Edit(config.name, operation, config.value))
    keeps = [each for each in edits if each.operation is not ConfigOperation.DELETE]
    _check_values(resource, [each.name for each in keeps if each.value is None])
    return edits


def _check_values(resource: Any, nulls: Sequence[str]) -> None:
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        raise ClusterError(Error.INVALID_REQUEST, "Error due to duplicate config keys")
    if nulls:
        raise ClusterError(
            Error.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}"
        )


async def _alter(parts: TopicParts, request: Request, change_of: Callable[[Any], Change]) -> Answer:
    """Return one outcome per resource; those that succeed do so together, in one write."""
    resources = request.body.resources
    counts = Counter((each.resource_type, each.resource_name) for each in resources)

    async def alter(resource: Any) -> dict[str, Any]:
        key = (resource.resource_type, resource.resource_name)
        answer = {"resource_type": key[0], "resource_name": key[1]}
        try:
            if counts[key] > 1:
                raise ClusterError(
                    Error.INVALID_REQUEST, "the same resource is named more than once"
                )
            refused = _denied(request, resource, _ALTER)
            if refused is not None:
                raise refused
            await _alter_one(parts, request, resource, change_of)
        except ClusterError as error:
            return answer | _outcome(error)
        return answer

    return {"responses": await asyncio.gather(*(alter(resource) for resource in resources))}


async def _alter_one(
    parts: TopicParts, request: Request, resource: Any, change_of: Callable[[Any], Change]
) -> None:
    name, validate_only = resource.resource_name, request.body.validate_only
    change = change_of(resource)
    if resource.resource_type == ResourceType.TOPIC:
        change = within_rights(request, parts.node.state, name, change)
        await parts.controller.alter_topic_configs(name, change, validate_only=validate_only)
    elif resource.resource_type == ResourceType.BROKER:
        broker_id = _check_broker_id(_asked(parts, request), name) if name else None

        def checked(current: Configs) -> Configs:
            configs = change(current)
            _check_broker_configs(parts, broker_id, configs)
            return configs

        await parts.controller.alter_broker_configs(broker_id, checked, validate_only=validate_only)
    elif resource.resource_type == ResourceType.GROUP:
        await alter_group_configs(parts, name, change, validate_only=validate_only)
    elif resource.resource_type in _WITHOUT_SETTINGS:
        _check_without_settings(resource.resource_type, name, change({}))
    else:
        raise ClusterError(Error.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def _check_without_settings(kind: int, name: str, configs: Configs) -> None:
    error, noun = _WITHOUT_SETTINGS[ResourceType(kind)]
    if not name:
        raise ClusterError(Error.INVALID_REQUEST, f"The name of a {noun} must not be empty.")
    if configs:
        raise ClusterError(error, f"A {noun} has no settings here: {', '.join(configs)}")


def _asked(parts: TopicParts, request: Request) -> int | None:
    """Return the broker that the client asked: a broker's own settings are changed at that broker,
    wherever the controller is. None where another has seen to that."""
    if request.is_forwarded:
        return None
    earlier = parts.forwarding.earlier_forwarder(request)
    return parts.node.id if earlier is None else earlier


def _check_broker_id(expected: int | None, name: str) -> int:
    if not name.isascii() or not name.isdigit():
        raise ClusterError(
            Error.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        )
    if expected is not None and int(name) != expected:
        raise ClusterError(
            Error.INVALID_REQUEST,
            f"Unexpected broker id, expected {expected}, but received {name}",
        )
    return int(name)


def _check_broker_configs(parts: TopicParts, broker_id: int | None, configs: Configs) -> None:
    known = broker_settings()
    of_listeners = {name for name in configs if name.startswith(PREFIX)}
    for name in configs.keys() - of_listeners:
        if name not in known:
            raise ClusterError(Error.INVALID_CONFIG, str(unknown(name, known)))
    fixed = sorted(
        name for name in configs.keys() - dynamic_settings() if listener_setting(name) is None
    )
    if of_listeners and broker_id is None:
        raise ClusterError(
            Error.INVALID_REQUEST,
            "Cannot update these configs at default cluster level: "
            f"{', '.join(sorted(of_listeners))}",
        )
    if fixed:
        raise ClusterError(
            Error.INVALID_REQUEST, f"Cannot update these configs dynamically: {', '.join(fixed)}"
        )
    settings = parts.node.settings
    if broker_id is not None:
        settings = msgspec.structs.replace(settings, node_id=broker_id)
    try:
        with_dynamic(settings, {**parts.node.state.broker_configs, broker_id: configs})
    except InvalidSetting as error:
        raise ClusterError(Error.INVALID_REQUEST, str(error)) from error


def _outcome(error: ClusterError) -> dict[str, Any]:
    return {"error_code": error.error, "error_message": error.message}
