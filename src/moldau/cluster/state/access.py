"""Access: who may do what, how much, and by which password, as the cluster agrees on it.

Each entry says everything about one subject: all rules of a resource pattern, all limits of a quota
entity, all credentials of a user, all settings of a group. An entry that says nothing is one that
is not there. Stores keep these structs as JSON: fields may be added with a default, never renamed
or removed.

An entry that cannot be read any more closes what it was about: nobody but super users gets at the
resource, the user has no password, the entity has the least of everything, the group has no
settings of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar
from urllib.parse import quote, unquote

import msgspec

from moldau.wire.acls import ANYBODY, WILDCARD, Operation, Permission
from moldau.wire.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

K = TypeVar("K")
V = TypeVar("V")


class Acl(msgspec.Struct, frozen=True, order=True):
    """One rule: whom it concerns, from which host, and what it grants or refuses.

    The numbers are those of `moldau.wire.acls`.
    """

    principal: str
    host: str
    operation: int
    permission: int


class ResourcePattern(msgspec.Struct, frozen=True, order=True):
    """The resources that rules are about: one by its name, or all whose names begin so."""

    kind: int
    name: str
    pattern: int


class ScramCredential(msgspec.Struct, frozen=True):
    """What it takes to check a password, and nothing that it could be found from (RFC 5802)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        # The keys let somebody try passwords, so that they do not belong in a log.
        return f"ScramCredential(iterations={self.iterations})"


# A type of entity ("user", "client-id", "ip") and its name; None is the default of that type.
QuotaEntity = tuple[tuple[str, str | None], ...]


def described(entity: QuotaEntity) -> str:
    """Return an entity as people read it: `user alice, client-id (default)`."""
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity)


class _Entry(msgspec.Struct, frozen=True, tag_field="change", tag=True):
    """One of the entries below."""


class AclsChanged(_Entry, frozen=True):
    """All rules that a resource pattern has from now on."""

    resource: ResourcePattern
    acls: tuple[Acl, ...] = ()

    @property
    def key(self) -> str:
        """The entry's name among all of them, in letters that ZooKeeper takes."""
        return f"acl.{self.resource.kind}.{self.resource.pattern}.{_quoted(self.resource.name)}"

    @property
    def is_empty(self) -> bool:
        return not self.acls

    def emptied(self) -> AclsChanged:
        return AclsChanged(self.resource)


class QuotasChanged(_Entry, frozen=True):
    """All limits that an entity has from now on, by Kafka's names of them."""

    entity: QuotaEntity
    limits: dict[str, float] = {}

    @property
    def key(self) -> str:
        parts = (
            f"{kind}={'' if name is None else '=' + _quoted(name)}" for kind, name in self.entity
        )
        return f"quota.{','.join(parts)}"

    @property
    def is_empty(self) -> bool:
        return not self.limits

    def emptied(self) -> QuotasChanged:
        return QuotasChanged(self.entity)


class ScramChanged(_Entry, frozen=True):
    """All credentials that a user has from now on, by the names of their mechanisms.

    Nobody can be the user without a name. Its stored key is a secret that all brokers share, from
    which those who do not exist get their salts.
    """

    user: str
    credentials: dict[str, ScramCredential] = {}

    @property
    def key(self) -> str:
        return f"scram.{_quoted(self.user)}"

    @property
    def is_empty(self) -> bool:
        return not self.credentials

    def emptied(self) -> ScramChanged:
        return ScramChanged(self.user)


class GroupConfigured(_Entry, frozen=True):
    """All settings that a group has of its own from now on."""

    group: str
    configs: dict[str, str] = {}

    @property
    def key(self) -> str:
        return f"group.{_quoted(self.group)}"

    @property
    def is_empty(self) -> bool:
        return not self.configs

    def emptied(self) -> GroupConfigured:
        return GroupConfigured(self.group)


AccessEntry = AclsChanged | QuotasChanged | ScramChanged | GroupConfigured


class AccessDamaged(_Entry, frozen=True):
    """An entry that cannot be read. It is never written anywhere: its store shows it like this."""

    key: str
    problem: str

    @property
    def is_empty(self) -> bool:
        return False

    def emptied(self) -> AccessEntry:
        subject = subject_of(self.key)
        assert subject is not None
        return subject


AccessChange = AccessEntry | AccessDamaged

# The rule of a resource whose rules cannot be read.
CLOSED = Acl(ANYBODY, WILDCARD, Operation.ALL, Permission.DENY)
# The limits of an entity whose limits cannot be read: enough to notice, not enough to harm.
_LEAST = {
    PRODUCER_BYTE_RATE: 1024.0,
    CONSUMER_BYTE_RATE: 1024.0,
    REQUEST_PERCENTAGE: 1.0,
    CONTROLLER_MUTATION_RATE: 1.0,
}
_LEAST_OF_ADDRESS = {CONNECTION_CREATION_RATE: 1.0}


def subject_of(key: str) -> AccessEntry | None:
    """Return the empty entry that a key belongs to; None if it is the key of none."""
    kind, _, rest = key.partition(".")
    found: AccessEntry | None = None
    if kind == "acl" and rest.count(".") >= 2:
        resource, pattern, name = rest.split(".", 2)
        if all(each.isascii() and each.isdecimal() for each in (resource, pattern)):
            found = AclsChanged(ResourcePattern(int(resource), unquote(name), int(pattern)))
    elif kind == "quota":
        found = QuotasChanged(tuple(_entity_part(part) for part in rest.split(",")))
    elif kind == "scram":
        found = ScramChanged(unquote(rest))
    elif kind == "group":
        found = GroupConfigured(unquote(rest))
    return found if found is not None and found.key == key else None


def _entity_part(text: str) -> tuple[str, str | None]:
    kind, _, name = text.partition("=")
    return kind, unquote(name[1:]) if name else None


class Access:
    """The entries so far. Only the state that it belongs to changes it. Event loop only."""

    def __init__(self) -> None:
        self.entries: dict[str, AccessChange] = {}
        self.acls: dict[ResourcePattern, tuple[Acl, ...]] = {}
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.scram: dict[str, dict[str, ScramCredential]] = {}
        self.group_configs: dict[str, dict[str, str]] = {}
        # Nothing before the first user has a password.
        self.secret = b""
        # The keys of entries that cannot be read, and why.
        self.damaged: dict[str, str] = {}

    def apply(self, change: AccessChange) -> None:
        """Take one entry in, in place of what was known of its subject."""
        self.damaged.pop(change.key, None)
        if change.is_empty:
            self.entries.pop(change.key, None)
        else:
            self.entries[change.key] = change
        match change:
            case AclsChanged(resource, acls):
                _put(self.acls, resource, acls)
            case QuotasChanged(entity, limits):
                _put(self.quotas, entity, limits)
            case ScramChanged("", credentials):
                self.secret = b"".join(each.stored_key for each in credentials.values())
            case ScramChanged(user, credentials):
                _put(self.scram, user, credentials)
            case GroupConfigured(group, configs):
                _put(self.group_configs, group, configs)
            case AccessDamaged(key, problem):
                self.damaged[key] = problem
                self._close(change.emptied())

    def _close(self, subject: AccessEntry) -> None:
        match subject:
            case AclsChanged(resource):
                self.acls[resource] = (CLOSED,)
            case QuotasChanged(entity):
                self.quotas[entity] = dict(_LEAST_OF_ADDRESS if IP in dict(entity) else _LEAST)
            case ScramChanged(user):
                self.scram.pop(user, None)
            case GroupConfigured(group):
                self.group_configs.pop(group, None)

    def changes(self) -> Iterator[AccessChange]:
        """Return the entries that lead here."""
        yield from self.entries.values()


def _put(found: dict[K, V], key: K, value: V) -> None:
    if value:
        found[key] = value
    else:
        found.pop(key, None)


def _quoted(name: str) -> str:
    return quote(name, safe="")
