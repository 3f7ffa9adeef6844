"""Differences: the changes between an earlier and a later state."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.cluster.state.access import AccessChange
from moldau.cluster.state.changes import (
    AnyChange,
    BrokerConfigured,
    BrokerJoined,
    BrokerLeft,
    PartitionsAdded,
    PartitionsChanged,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from moldau.cluster.state.state import ImpossibleChange
from moldau.cluster.state.topics import BrokerInfo, Topic


def topic_differences(old: Topic | None, new: Topic | None) -> list[AnyChange]:
    """Return the changes that lead from one state of a topic to another; None is a topic that is
    not.

    A topic with another id is another topic. ImpossibleChange if partitions are gone, which only
    a deletion can bring about.
    """
    if old is None or new is None or old.id != new.id:
        changes: list[AnyChange] = []
        if old is not None:
            changes.append(TopicDeleted(old.name, old.id))
        if new is not None:
            changes.append(TopicCreated(new))
        return changes
    if old == new:
        return []
    before = len(old.partitions)
    if len(new.partitions) < before:
        raise ImpossibleChange(
            f"topic '{old.name}' had {before} partitions and now has {len(new.partitions)}"
        )
    changes = []
    changed = {
        index: partition
        for index, partition in enumerate(new.partitions[:before])
        if partition != old.partitions[index]
    }
    if changed:
        changes.append(PartitionsChanged(old.name, changed))
    if len(new.partitions) > before:
        changes.append(PartitionsAdded(old.name, before, new.partitions[before:]))
    if new.configs != old.configs:
        changes.append(TopicConfigured(old.name, new.configs))
    return changes


def broker_differences(
    old: Mapping[int, BrokerInfo], new: Mapping[int, BrokerInfo]
) -> list[AnyChange]:
    """Return who left and who joined. A broker that registered anew did both."""
    changes: list[AnyChange] = []
    for id, info in old.items():
        if id not in new or new[id].epoch != info.epoch:
            changes.append(BrokerLeft(id))
    for id, info in new.items():
        if old.get(id) != info:
            changes.append(BrokerJoined(info))
    return changes


def config_differences(
    old: Mapping[int | None, dict[str, str]], new: Mapping[int | None, dict[str, str]]
) -> list[AnyChange]:
    """Return the dynamic settings that are others now; no settings and none at all are the same."""
    changes: list[AnyChange] = []
    for id in dict.fromkeys([*old, *new]):
        configs = new.get(id, {})
        if old.get(id, {}) != configs:
            changes.append(BrokerConfigured(id, configs))
    return changes


def access_differences(
    old: Mapping[str, AccessChange], new: Mapping[str, AccessChange]
) -> list[AnyChange]:
    """Return the entries that are others now; what is gone says nothing from now on."""
    changes: list[AnyChange] = [entry.emptied() for key, entry in old.items() if key not in new]
    return changes + [entry for key, entry in new.items() if old.get(key) != entry]
