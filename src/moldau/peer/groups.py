"""Groups as their coordinators tell of them: kind, epochs, and why they rebalanced."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from moldau.peer.cluster import Cluster
from moldau.peer.errors import Refused
from moldau.wire.apis import Api
from moldau.wire.errors import Error

CLASSIC, CONSUMER = "classic", "consumer"
_GROUP_RESOURCE = 32
_HISTORY, _SINCE = "moldau.history", "moldau.history.since"


class ListedGroup(msgspec.Struct, frozen=True):
    """A group: its kind, and the state that it is in."""

    name: str
    kind: str
    state: str


class ConsumerMember(msgspec.Struct, frozen=True):
    """A member of a consumer group: what it reads, and what it shall read in the end."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int
    is_classic: bool
    partitions: tuple[tuple[str, int], ...]
    target: tuple[tuple[str, int], ...]


class ConsumerGroupInfo(msgspec.Struct, frozen=True):
    """A consumer group with its epochs: the group's, and that of its last assignment."""

    name: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMember, ...]


class Rebalance(msgspec.Struct, frozen=True):
    """A rebalance that is over. `why` names the members that caused it."""

    ended_ms: int
    took_ms: int
    kind: str
    epoch: int
    members: int
    assignor: str | None
    why: str
    needs_action: bool


class History(msgspec.Struct, frozen=True):
    """The last rebalances of a group, the oldest first, since its broker became the coordinator;
    `since_ms` is None where that is not told."""

    since_ms: int | None
    rebalances: tuple[Rebalance, ...]


class Groups:
    """Asks coordinators, for one thread. PeerError as from `Cluster`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def listed(self) -> list[ListedGroup]:
        """Return the groups of all coordinators, by name."""

        def ask() -> list[ListedGroup]:
            found: dict[str, ListedGroup] = {}
            for node in self._cluster.metadata(()).nodes.values():
                answer = self._cluster.to(node).ask(
                    Api.LIST_GROUPS, {"states_filter": [], "types_filter": []}
                )
                _check(answer.error_code, "groups")
                for each in answer.groups:
                    kind = getattr(each, "group_type", "") or CLASSIC
                    state = getattr(each, "group_state", "")
                    found[each.group_id] = ListedGroup(each.group_id, kind.lower(), state)
            return sorted(found.values(), key=lambda group: group.name)

        return self._cluster.insist(ask)

    def consumer_group(self, name: str) -> ConsumerGroupInfo | None:
        """Return a consumer group; None if there is none of that kind and name."""

        def ask() -> ConsumerGroupInfo | None:
            node = self._cluster.coordinator(name)
            values = {"group_ids": [name], "include_authorized_operations": False}
            [found] = self._cluster.to(node).ask(Api.CONSUMER_GROUP_DESCRIBE, values).groups
            if found.error_code == Error.GROUP_ID_NOT_FOUND:
                return None
            _check(found.error_code, f"group {name}")
            return _described(found)

        return self._cluster.insist(ask)

    def history(self, name: str) -> History:
        """Return the last rebalances of a group, as far as its coordinator has seen them."""

        def ask() -> History:
            node = self._cluster.coordinator(name)
            resource = {
                "resource_type": _GROUP_RESOURCE,
                "resource_name": name,
                "configuration_keys": [_HISTORY, _SINCE],
            }
            [found] = (
                self._cluster.to(node).ask(Api.DESCRIBE_CONFIGS, {"resources": [resource]}).results
            )
            _check(found.error_code, f"group {name}")
            told = {each.name: each.value for each in found.configs}
            past = tuple(Rebalance(**each) for each in json.loads(told.get(_HISTORY, "[]")))
            return History(int(told[_SINCE]) if _SINCE in told else None, past)

        return self._cluster.insist(ask)


def _described(found: Any) -> ConsumerGroupInfo:
    return ConsumerGroupInfo(
        found.group_id,
        found.group_state,
        found.group_epoch,
        found.assignment_epoch,
        found.assignor_name,
        tuple(
            ConsumerMember(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host.removeprefix("/"),
                each.member_epoch,
                getattr(each, "member_type", 1) == 0,
                tuple(_places(each.assignment.topic_partitions)),
                tuple(_places(each.target_assignment.topic_partitions)),
            )
            for each in sorted(found.members, key=lambda each: (each.client_id, each.member_id))
        ),
    )


def _places(topics: Iterable[Any]) -> list[tuple[str, int]]:
    return sorted((each.topic_name, index) for each in topics for index in each.partitions)


def _check(code: int, what: str) -> None:
    if code:
        raise Refused(code, what)
