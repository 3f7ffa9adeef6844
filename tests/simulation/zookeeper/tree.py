"""The tree of a simulated ZooKeeper: nodes, versions, and transactions that happen whole or not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)

from moldau.cluster.zookeeper.sessions.operations import Check, Create, Delete, Operation, SetData


class ZnodeStat(NamedTuple):
    """What the product reads of kazoo's."""

    version: int
    czxid: int
    mzxid: int
    ephemeralOwner: int
    mtime: int


@dataclass(eq=False)
class Node:
    data: bytes
    czxid: int
    mzxid: int
    mtime_ms: int
    owner: int = 0
    version: int = 0
    # How many children were ever created: the number of the next sequential one.
    created: int = 0
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> ZnodeStat:
        return ZnodeStat(self.version, self.czxid, self.mzxid, self.owner, self.mtime_ms)


class Change(NamedTuple):
    """One effect of a transaction. `data` is None for a node that goes."""

    path: str
    data: bytes | None
    owner: int
    is_new: bool


class Transaction(NamedTuple):
    """What the leader has decided: every server applies the same."""

    zxid: int
    at_ms: int
    changes: tuple[Change, ...]


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class Tree:
    """The nodes as one server knows them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0, 0)}
        self.zxid = 0

    def node(self, path: str) -> Node:
        found = self.nodes.get(path)
        if found is None:
            raise NoNodeError(path)
        return found

    def apply(self, transaction: Transaction) -> list[tuple[str, str]]:
        """Do what was decided; return the events: created, changed, deleted, and children."""
        zxid, at_ms, changes = transaction
        self.zxid = zxid
        events: list[tuple[str, str]] = []
        for path, data, owner, is_new in changes:
            parent, name = parent_of(path), path.rpartition("/")[2]
            if data is None:
                del self.nodes[path]
                del self.nodes[parent].children[name]
                events += [("deleted", path), ("child", parent)]
            elif is_new:
                self.nodes[path] = Node(data, zxid, zxid, at_ms, owner)
                above = self.nodes[parent]
                above.children[name] = None
                above.created += 1
                events += [("created", path), ("child", parent)]
            else:
                node = self.nodes[path]
                node.data, node.mzxid, node.mtime_ms = data, zxid, at_ms
                node.version += 1
                events.append(("changed", path))
        return events


class _Draft:
    """The tree with the first operations of a transaction done."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.changes: list[Change] = []
        self._versions: dict[str, int | None] = {}
        self._owners: dict[str, int] = {}
        self._created: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    def version(self, path: str) -> int | None:
        if path in self._versions:
            return self._versions[path]
        node = self._tree.nodes.get(path)
        return None if node is None else node.version

    def _count(self, path: str) -> int:
        node = self._tree.nodes.get(path)
        return self._counts.get(path, 0 if node is None else len(node.children))

    def _next(self, path: str) -> int:
        node = self._tree.nodes.get(path)
        return self._created.get(path, 0 if node is None else node.created)

    def _owner(self, path: str) -> int:
        node = self._tree.nodes.get(path)
        return self._owners.get(path, 0 if node is None else node.owner)

    def do(self, operation: Operation, session: int) -> Any:
        match operation:
            case Create(path, data, ephemeral, sequence):
                parent = parent_of(path)
                if self.version(parent) is None:
                    raise NoNodeError
                if self._owner(parent):
                    raise NoChildrenForEphemeralsError
                number = self._next(parent)
                if sequence:
                    path = f"{path}{number:010d}"
                if self.version(path) is not None:
                    raise NodeExistsError
                self._created[parent] = number + 1
                self._counts[parent] = self._count(parent) + 1
                self._versions[path], self._counts[path] = 0, 0
                self._created[path] = 0
                self._owners[path] = session if ephemeral else 0
                self.changes.append(Change(path, data, self._owners[path], True))
                return path
            case SetData(path, data, version):
                now = self._expect(path, version)
                self._versions[path] = now + 1
                self.changes.append(Change(path, data, 0, False))
                return SetData
            case Delete(path, version):
                self._expect(path, version)
                if self._count(path):
                    raise NotEmptyError
                self._versions[path] = None
                self._counts[parent_of(path)] = self._count(parent_of(path)) - 1
                self.changes.append(Change(path, None, 0, False))
                return True
            case Check(path, version):
                self._expect(path, version)
                return True

    def _expect(self, path: str, version: int) -> int:
        now = self.version(path)
        if now is None:
            raise NoNodeError
        if version not in (-1, now):
            raise BadVersionError
        return now


def decide(
    tree: Tree, operations: Sequence[Operation], session: int
) -> tuple[list[Change], list[Any]]:
    """Return the changes of a transaction and the results of its operations.

    No changes if one is refused: then the results are errors, and tell which.
    """
    draft = _Draft(tree)
    results: list[Any] = []
    for place, operation in enumerate(operations):
        try:
            results.append(draft.do(operation, session))
        except KazooException as problem:
            after = len(operations) - place - 1
            return [], [
                *(RolledBackError() for _ in range(place)),
                problem,
                *(RuntimeInconsistency() for _ in range(after)),
            ]
    return draft.changes, results


def results_in(tree: Tree, changes: Sequence[Change], results: Sequence[Any]) -> list[Any]:
    """Return the results with the stats of what was written, once it has been applied."""
    written = iter(
        [change.path for change in changes if change.data is not None and not change.is_new]
    )
    return [tree.nodes[next(written)].stat() if each is SetData else each for each in results]


_VALID = re.compile(r"/|(/[^/]+)+")


def check_path(path: str) -> None:
    if not _VALID.fullmatch(path):
        raise ValueError(f"not a path: {path!r}")
