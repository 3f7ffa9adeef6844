"""The state of a registry: the topic's records, applied in order.

No I/O here. Every reader applies the same records in the same order and so comes to the same
state; that is what decides between two writers.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator

import msgspec

from moldau.schemas.levels import Level
from moldau.schemas.registry.names import DEFAULT_CONTEXT, beside, context_of, scopes
from moldau.schemas.registry.records import (
    Association,
    AssociationKey,
    ClearSubjectKey,
    Config,
    ConfigKey,
    DeleteSubjectKey,
    DeleteSubjectValue,
    HighestIds,
    ModeKey,
    ModeValue,
    Record,
    SchemaKey,
    SchemaValue,
)
from moldau.schemas.schema import Dependency, Reference, Schema

DEFAULT_LEVEL = Level.BACKWARD
READWRITE, READONLY, READONLY_OVERRIDE = "READWRITE", "READONLY", "READONLY_OVERRIDE"
IMPORT, FORWARD = "IMPORT", "FORWARD"
MODES = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT, FORWARD)

# How far references may lead from one schema to the next.
_DEEPEST = 100


class Version(msgspec.Struct, frozen=True):
    """A version of a subject; one that is deleted can still be found by its id."""

    subject: str
    version: int
    id: int
    schema: Schema
    deleted: bool = False


class MissingReference(LookupError):
    """A reference to a version that is not there."""


def digest(schema: Schema) -> bytes:
    """Return what is the same for the same schema, whatever subject it is under."""
    return hashlib.md5(msgspec.json.encode(schema), usedforsecurity=False).digest()


def guid_of(schema: Schema) -> str:
    return str(uuid.UUID(bytes=digest(schema)))


class RegistryState:
    """Subjects with their versions, ids, configs and modes. An id belongs to one context."""

    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, Version]] = {}
        # The versions that have an id, by context and id.
        self._holders: dict[tuple[str, int], dict[tuple[str, int], Version]] = {}
        self._ids: dict[tuple[str, bytes], int] = {}
        self._guids: dict[str, dict[tuple[str, int], None]] = {}
        self._guid_of: dict[tuple[str, int], str] = {}
        self._referrers: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self._highest: dict[str, int] = {}
        self.configs: dict[str | None, Config] = {}
        self.modes: dict[str | None, str] = {}
        self.associations: dict[AssociationKey, Association] = {}
        # The nonce of the claim that a version was given by.
        self._nonces: dict[tuple[str, int], str] = {}
        # Claims that are still in the topic, those that lost included.
        self.claims: dict[SchemaKey, None] = {}

    # Records

    def apply(self, record: Record) -> None:
        key, value = record
        match key, value:
            case SchemaKey(), SchemaValue():
                self._apply_schema(key, value)
            case SchemaKey(), _:
                self._forget(key)
            case ConfigKey(), Config():
                self.configs[key.subject] = value
            case ConfigKey(), _:
                self.configs.pop(key.subject, None)
            case ModeKey(), ModeValue():
                self.modes[key.subject] = value.mode
            case ModeKey(), _:
                self.modes.pop(key.subject, None)
            case AssociationKey(), Association():
                self.associations[key] = value
            case AssociationKey(), _:
                self.associations.pop(key, None)
            case DeleteSubjectKey(), DeleteSubjectValue():
                self._delete_subject(value.subject, value.version)
            case ClearSubjectKey(), _ if value is not None:
                for version in self.versions(key.subject, deleted=True):
                    if version.deleted:
                        self._remove(key.subject, version.version)
            case _, HighestIds():
                for context, highest in value.highest_ids.items():
                    self._highest[context] = max(highest, self._highest.get(context, 0))

    def _apply_schema(self, key: SchemaKey, value: SchemaValue) -> None:
        found = Version(value.subject, value.version, value.id, value.content, value.deleted)
        if key.nonce:
            self.claims[key] = None
            if not self._may_claim(found):
                return
            self._nonces[found.subject, found.version] = key.nonce
        self._remove(found.subject, found.version)
        self._add(found)

    def _may_claim(self, claim: Version) -> bool:
        """The first to claim a version and an id has them."""
        if claim.version in self._subjects.get(claim.subject, {}):
            return False
        context = context_of(claim.subject)
        holder = self._holder(context, claim.id)
        if holder is not None and holder.schema.schema != claim.schema.schema:
            return False
        return self._ids.get((context, digest(claim.schema)), claim.id) == claim.id

    def _add(self, version: Version) -> None:
        place = (version.subject, version.version)
        context = context_of(version.subject)
        self._subjects.setdefault(version.subject, {})[version.version] = version
        self._holders.setdefault((context, version.id), {})[place] = version
        self._ids.setdefault((context, digest(version.schema)), version.id)
        guid = self._guid_of[context, version.id] = guid_of(version.schema)
        self._guids.setdefault(guid, {})[context, version.id] = None
        self._highest[context] = max(version.id, self._highest.get(context, 0))
        for each in version.schema.references:
            meant = (beside(version.subject, each.subject), each.version)
            self._referrers.setdefault(meant, set()).add(place)

    def _remove(self, subject: str, version: int) -> None:
        found = self._subjects.get(subject, {}).pop(version, None)
        if found is None:
            return
        if not self._subjects[subject]:
            del self._subjects[subject]
        context = context_of(subject)
        for each in found.schema.references:
            meant = (beside(subject, each.subject), each.version)
            self._referrers.get(meant, set()).discard((subject, version))
        holders = self._holders[context, found.id]
        del holders[subject, version]
        if not holders:
            # Of a schema that nobody has any more the id is not known, but not given again.
            del self._holders[context, found.id]
            key = (context, digest(found.schema))
            if self._ids.get(key) == found.id:
                del self._ids[key]
            guid = self._guid_of.pop((context, found.id), "")
            self._guids.get(guid, {}).pop((context, found.id), None)

    def _forget(self, key: SchemaKey) -> None:
        """Apply a tombstone: of a claim it removes the version only if it was given by it."""
        if not key.nonce:
            self._nonces.pop((key.subject, key.version), None)
            self._remove(key.subject, key.version)
            return
        self.claims.pop(key, None)

    def _delete_subject(self, subject: str, last: int) -> None:
        for version, found in list(self._subjects.get(subject, {}).items()):
            if version <= last and not found.deleted:
                self._remove(subject, version)
                self._add(msgspec.structs.replace(found, deleted=True))

    # Questions

    def won(self, key: SchemaKey) -> bool:
        """Return whether the claim of this key is the one that counts."""
        return self._nonces.get((key.subject, key.version)) == key.nonce

    def subjects(self) -> Iterator[tuple[str, bool]]:
        """Return all subjects, and whether each has a version that is not deleted."""
        for name in sorted(self._subjects):
            yield name, any(not each.deleted for each in self._subjects[name].values())

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Return the versions of a subject, oldest first; on demand with those deleted."""
        versions = self._subjects.get(subject, {})
        return [
            versions[number]
            for number in sorted(versions)
            if deleted or not versions[number].deleted
        ]

    def has_subject(self, subject: str, *, deleted: bool = False) -> bool:
        return any(deleted or not each.deleted for each in self._subjects.get(subject, {}).values())

    def version(self, subject: str, version: int) -> Version | None:
        return self._subjects.get(subject, {}).get(version)

    def holders(self, context: str, schema_id: int) -> list[Version]:
        """Return the versions that have an id."""
        return list(self._holders.get((context, schema_id), {}).values())

    def _holder(self, context: str, schema_id: int) -> Version | None:
        return next(iter(self._holders.get((context, schema_id), {}).values()), None)

    def by_id(self, schema_id: int, context: str = DEFAULT_CONTEXT) -> Schema | None:
        found = self._holder(context, schema_id)
        return None if found is None else found.schema

    def guid(self, context: str, schema_id: int) -> str:
        return self._guid_of[context, schema_id]

    def by_guid(self, guid: str) -> list[tuple[str, int]]:
        """Return the context and id of each schema with this guid."""
        return list(self._guids.get(guid, ()))

    def id_of(self, context: str, schema: Schema) -> int | None:
        return self._ids.get((context, digest(schema)))

    def next_id(self, context: str) -> int:
        return self._highest.get(context, 0) + 1

    def next_version(self, subject: str) -> int:
        return max(self._subjects.get(subject, {0: None})) + 1

    def highest_ids(self) -> HighestIds:
        return HighestIds(dict(self._highest))

    def nonce(self, subject: str, version: int) -> str:
        return self._nonces.get((subject, version), "")

    def contexts(self) -> list[str]:
        return sorted({DEFAULT_CONTEXT} | {context_of(subject) for subject in self._subjects})

    def referrers(self, subject: str, version: int) -> list[Version]:
        """Return the versions that refer to this one."""
        places = sorted(self._referrers.get((subject, version), ()))
        return [self._subjects[name][number] for name, number in places]

    def config(self, subject: str | None) -> Config:
        """Return what is set nearest to a subject."""
        for scope in scopes(subject):
            if scope in self.configs:
                return self.configs[scope]
        return Config()

    def level(self, subject: str | None) -> Level:
        for scope in scopes(subject):
            found = self.configs.get(scope, Config()).compatibility_level
            if found is not None:
                return found
        return DEFAULT_LEVEL

    def mode(self, subject: str | None) -> str:
        if self.modes.get(None) == READONLY_OVERRIDE:
            return READONLY_OVERRIDE
        return next((self.modes[each] for each in scopes(subject) if each in self.modes), READWRITE)

    def dependencies(self, references: Iterable[Reference], subject: str) -> list[Dependency]:
        """Return the schemas that references of a subject name, each behind those that it refers
        to itself."""
        found: dict[str, Dependency] = {}
        self._collect(references, subject, found, set())
        return list(found.values())

    def _collect(
        self,
        references: Iterable[Reference],
        subject: str,
        found: dict[str, Dependency],
        open_ones: set[tuple[str, int]],
    ) -> None:
        for each in references:
            place = (beside(subject, each.subject), each.version)
            version = self.version(*place)
            if version is None:
                raise MissingReference(
                    f"the reference {each.name!r} names version {each.version} of {place[0]!r}, "
                    "which does not exist"
                )
            if place in open_ones:
                raise MissingReference(f"the reference {each.name!r} is circular")
            if len(found) > 1000:
                raise MissingReference("there are more than 1000 references")
            if len(open_ones) > _DEEPEST:
                raise MissingReference(f"references are nested more than {_DEEPEST} levels deep")
            if each.name not in found:
                self._collect(version.schema.references, place[0], found, open_ones | {place})
                found.setdefault(each.name, Dependency(each.name, version.schema.schema))
