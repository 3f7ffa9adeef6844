"""Operations: requests to ZooKeeper and their results, as values."""

from __future__ import annotations

from dataclasses import dataclass

from kazoo.exceptions import KazooException, NoNodeError

from moldau.cluster.store import StoreError

NoNode = NoNodeError


class Unreachable(StoreError):
    """There is no ZooKeeper at the moment, and what was asked for did not happen."""


class Unanswered(StoreError):
    """The connection broke while ZooKeeper may have been doing it: it happened, or it did not."""


class Refused(StoreError):
    """ZooKeeper refused a transaction: nothing of it happened. `at` is the operation's place."""

    def __init__(self, at: int, operation: Operation, error: KazooException) -> None:
        super().__init__(f"ZooKeeper refused to {operation}: {type(error).__name__}")
        self.at = at
        self.error = error


@dataclass(frozen=True, slots=True)
class Stat:
    """The metadata of a node in ZooKeeper."""

    version: int
    czxid: int
    mzxid: int
    owner: int
    changed_ms: int


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False

    def __str__(self) -> str:
        return f"create {self.path}"


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    version: int

    def __str__(self) -> str:
        return f"write {self.path} (version {self.version})"


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = -1

    def __str__(self) -> str:
        return f"delete {self.path}"


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int = -1

    def __str__(self) -> str:
        return f"find {self.path} (version {self.version})"


Operation = Create | SetData | Delete | Check
