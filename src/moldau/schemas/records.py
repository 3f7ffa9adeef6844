"""The records of the topic `_schemas`.

Keys and values are JSON, with the fields that the ecosystem's registries use:

- `{"keytype":"SCHEMA","subject":S,"version":V,"magic":1,"nonce":N}` has the value
  `{"subject":S,"version":V,"id":I,"schema":TEXT,"deleted":false,"schemaType":"AVRO"}`
- `{"keytype":"CONFIG","subject":S or null,"magic":0}` has the value `{"compatibilityLevel":MODE}`

The nonce is ours. It makes a schema's key unique: when two writers try for the same version, both
records are there, the earlier one counts, and compaction cannot put the later one in its place.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from moldau.schemas.modes import Mode


class SchemaKey(msgspec.Struct, frozen=True, tag_field="keytype", tag="SCHEMA"):
    subject: str
    version: int
    nonce: str = ""
    magic: Literal[0, 1] = 1


class ConfigKey(msgspec.Struct, frozen=True, tag_field="keytype", tag="CONFIG"):
    subject: str | None = None
    magic: int = 0


class SchemaValue(msgspec.Struct, frozen=True, rename={"schema_type": "schemaType"}):
    subject: str
    version: int
    id: int
    schema: str
    deleted: bool = False
    schema_type: str = "AVRO"


class ConfigValue(msgspec.Struct, frozen=True, rename={"mode": "compatibilityLevel"}):
    mode: Mode


_KEYS = msgspec.json.Decoder(SchemaKey | ConfigKey)
_SCHEMAS = msgspec.json.Decoder(SchemaValue)
_CONFIGS = msgspec.json.Decoder(ConfigValue)
_ENCODER = msgspec.json.Encoder()

Record = tuple[SchemaKey, SchemaValue | None] | tuple[ConfigKey, ConfigValue | None]


def encode(part: SchemaKey | ConfigKey | SchemaValue | ConfigValue) -> bytes:
    return _ENCODER.encode(part)


def decode(key: bytes | None, value: bytes | None) -> Record | None:
    """Parse a record; None for records of other kinds, which others may keep in the topic."""
    try:
        found = _KEYS.decode(key or b"")
        if isinstance(found, SchemaKey):
            return found, _SCHEMAS.decode(value) if value else None
        return found, _CONFIGS.decode(value) if value else None
    except msgspec.MsgspecError:
        return None


def schema_text(schema: Any) -> str:
    """Return one text for one schema, whatever its spacing and the order of its keys."""
    return json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
