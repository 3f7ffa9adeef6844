"""The records of the topic `_schemas`, in the format of Confluent's registry.

    key                                                          value
    {"keytype":"SCHEMA","subject":S,"version":V,"magic":1}       a schema with its id
    {"keytype":"CONFIG","subject":S or null,"magic":0}           {"compatibilityLevel":...}
    {"keytype":"MODE","subject":S or null,"magic":0}             {"mode":...}
    {"keytype":"DELETE_SUBJECT","subject":S,"magic":0}           {"subject":S,"version":V}
    {"keytype":"CLEAR_SUBJECT","subject":S,"magic":0}            {"subject":S}
    {"keytype":"ASSOCIATION","resourceId":...,"magic":0}         ours: a resource's subject
    {"keytype":"NOOP","magic":0}                                 ours: the highest id ever given

Keys are compared byte by byte when the topic is compacted, so they are written as Confluent's
registry writes them.

A SCHEMA key may have a nonce: then the record is a claim. Programs without a registry write claims.
When two of them try for the same version, both records are there, the earlier one counts, and
compaction cannot put the later one in its place. Records without a nonce are written by the one
broker that leads the topic, and always count.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from moldau.schemas.levels import Level
from moldau.schemas.schema import Reference, Schema, SchemaType


class SchemaKey(msgspec.Struct, frozen=True, tag_field="keytype", tag="SCHEMA"):
    subject: str
    version: int
    nonce: str = ""
    magic: Literal[0, 1] = 1


class ConfigKey(msgspec.Struct, frozen=True, tag_field="keytype", tag="CONFIG"):
    subject: str | None = None
    magic: int = 0


class ModeKey(msgspec.Struct, frozen=True, tag_field="keytype", tag="MODE"):
    subject: str | None = None
    magic: int = 0


class DeleteSubjectKey(msgspec.Struct, frozen=True, tag_field="keytype", tag="DELETE_SUBJECT"):
    subject: str
    magic: int = 0


class ClearSubjectKey(msgspec.Struct, frozen=True, tag_field="keytype", tag="CLEAR_SUBJECT"):
    subject: str
    magic: int = 0


class AssociationKey(
    msgspec.Struct, frozen=True, tag_field="keytype", tag="ASSOCIATION", rename="camel"
):
    resource_id: str
    resource_type: str
    association_type: str
    magic: int = 0


class NoopKey(msgspec.Struct, frozen=True, tag_field="keytype", tag="NOOP"):
    magic: int = 0


class SchemaValue(msgspec.Struct, frozen=True, rename="camel"):
    subject: str
    version: int
    id: int
    schema: str
    deleted: bool = False
    schema_type: SchemaType | None = None
    references: list[Reference] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None

    @property
    def content(self) -> Schema:
        return Schema(
            self.schema,
            self.schema_type or SchemaType.AVRO,
            tuple(self.references or ()),
            self.metadata,
            self.rule_set,
        )


class Config(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is set for a subject, a context, or for all."""

    compatibility_level: Level | None = None
    alias: str | None = None
    normalize: bool | None = None
    compatibility_group: str | None = None
    default_metadata: dict[str, Any] | None = None
    override_metadata: dict[str, Any] | None = None
    default_rule_set: dict[str, Any] | None = None
    override_rule_set: dict[str, Any] | None = None


class ModeValue(msgspec.Struct, frozen=True):
    mode: str


class DeleteSubjectValue(msgspec.Struct, frozen=True):
    subject: str
    version: int


class ClearSubjectValue(msgspec.Struct, frozen=True):
    subject: str


class Association(msgspec.Struct, frozen=True, rename="camel"):
    """A resource, such as a topic, and the subject that its keys or values belong to."""

    subject: str
    resource_name: str
    resource_namespace: str
    resource_id: str
    resource_type: str
    association_type: str
    lifecycle: str = "WEAK"
    frozen: bool = False


class HighestIds(msgspec.Struct, frozen=True, rename="camel"):
    """The highest id given in each context, which outlives the schema that has it."""

    highest_ids: dict[str, int]


Key = (
    SchemaKey | ConfigKey | ModeKey | DeleteSubjectKey | ClearSubjectKey | AssociationKey | NoopKey
)
Value = (
    SchemaValue
    | Config
    | ModeValue
    | DeleteSubjectValue
    | ClearSubjectValue
    | Association
    | HighestIds
)
Record = tuple[Key, Value | None]

_KEYS = msgspec.json.Decoder(Key)
_VALUES: dict[type, msgspec.json.Decoder[Any]] = {
    SchemaKey: msgspec.json.Decoder(SchemaValue),
    ConfigKey: msgspec.json.Decoder(Config),
    ModeKey: msgspec.json.Decoder(ModeValue),
    DeleteSubjectKey: msgspec.json.Decoder(DeleteSubjectValue),
    ClearSubjectKey: msgspec.json.Decoder(ClearSubjectValue),
    AssociationKey: msgspec.json.Decoder(Association),
    NoopKey: msgspec.json.Decoder(HighestIds),
}
_ENCODER = msgspec.json.Encoder()


def encode_key(key: Key) -> bytes:
    if isinstance(key, AssociationKey):
        return _ENCODER.encode(key)
    plain: dict[str, Any] = {"keytype": type(key).__struct_config__.tag}
    if not isinstance(key, NoopKey):
        plain["subject"] = key.subject
    if isinstance(key, SchemaKey):
        plain["version"] = key.version
        if key.nonce:
            plain["nonce"] = key.nonce
    plain["magic"] = key.magic
    return _ENCODER.encode(plain)


def encode_value(value: Value) -> bytes:
    if not isinstance(value, SchemaValue):
        return _ENCODER.encode(value)
    plain: dict[str, Any] = {"subject": value.subject, "version": value.version, "id": value.id}
    if value.schema_type not in (None, SchemaType.AVRO):
        plain["schemaType"] = value.schema_type
    parts = {
        "references": value.references,
        "metadata": value.metadata,
        "ruleSet": value.rule_set,
    }
    plain |= {name: part for name, part in parts.items() if part}
    return _ENCODER.encode(plain | {"schema": value.schema, "deleted": value.deleted})


def decode(key: bytes | None, value: bytes | None) -> Record | None:
    """Parse a record; None for records of other kinds, which others may keep in the topic."""
    try:
        found: Key = _KEYS.decode(key or b"")
        return found, _VALUES[type(found)].decode(value) if value else None
    except (msgspec.MsgspecError, RecursionError):
        return None


def schema_text(schema: Any) -> str:
    """Return one text for one schema, whatever its spacing and the order of its keys."""
    return json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
