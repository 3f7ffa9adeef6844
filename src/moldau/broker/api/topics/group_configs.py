"""Settings of groups, for the config APIs: each has those of its coordinator and may have its own.

A group need not exist to have settings: they wait for it.

The last rebalances of a group are here, too, under a name that has to be asked for: its coordinator
knows them, and tools reach it by an API that all clients have. So is what a share group has in
flight, which only the leaders of partitions know.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection

from moldau.broker.api.topics.config_entries import ConfigEntry, Source, Synonym, broker_synonyms
from moldau.broker.api.topics.parts import TopicParts
from moldau.broker.settings.group_config import GroupConfig, check_group_configs, of_broker
from moldau.cluster.decisions.features import group_version
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.access import Access, AccessChange, GroupConfigured
from moldau.settings import InvalidSetting, Setting, definitions
from moldau.wire.errors import Error

Configs = dict[str, str]

# What moldau groups describe asks for; nobody else is shown it.
HISTORY = Setting(
    "moldau.history", "", "The last hundred rebalances of the group, as its coordinator saw them."
)
HISTORY_SINCE = Setting(
    "moldau.history.since", "", "When that coordinator began, in milliseconds since 1970."
)
SHARING = Setting(
    "moldau.sharing", "", "What the group has in flight of the partitions that this broker leads."
)


def group_entries(parts: TopicParts, group: str, keys: Collection[str] | None) -> list[ConfigEntry]:
    """Return all settings of a group; its history if that is asked for."""
    _check_name(group)
    if keys and HISTORY.name in keys:
        held = parts.groups.find(group)
        if isinstance(held, Error):
            raise ClusterError(held, f"The history of {group} is not here: {held.name}.")
        past = held.history
        return [
            ConfigEntry(HISTORY, HISTORY.name, past.as_json(), True, []),
            ConfigEntry(HISTORY_SINCE, HISTORY_SINCE.name, str(past.since_ms), True, []),
        ]
    if keys and SHARING.name in keys:
        told = json.dumps(parts.shares.report(group))
        return [ConfigEntry(SHARING, SHARING.name, told, True, [])]
    state, settings = parts.node.state, parts.node.settings
    configs = state.access.group_configs.get(group, {})
    entries = []
    for name, setting in definitions(GroupConfig).items():
        synonyms = list(broker_synonyms(setting, settings, state.broker_configs))
        value = setting.format(of_broker(setting, settings).default)
        if name in configs:
            value = configs[name]
            synonyms.insert(0, Synonym(name, value, Source.GROUP))
        entries.append(ConfigEntry(setting, name, value, False, synonyms))
    return entries


async def alter_group_configs(
    parts: TopicParts, group: str, change: Callable[[Configs], Configs], *, validate_only: bool
) -> None:
    """Replace a group's own settings by what `change` makes of them; ClusterError if refused."""
    _check_name(group)

    def decide(access: Access) -> tuple[list[AccessChange], None]:
        current = access.group_configs.get(group, {})
        configs = change(dict(current))
        try:
            check_group_configs(configs, parts.node.settings)
        except InvalidSetting as error:
            raise ClusterError(Error.INVALID_CONFIG, str(error)) from error
        if configs == current:
            return [], None
        if not group_version(parts.node.state):
            raise ClusterError(
                Error.UNSUPPORTED_VERSION, "Some brokers do not know settings of groups yet."
            )
        return [GroupConfigured(group, configs)], None

    await parts.controller.alter_access(decide, validate_only=validate_only)


def _check_name(group: str) -> None:
    if not group:
        raise ClusterError(Error.INVALID_REQUEST, "Default group resources are not allowed.")
