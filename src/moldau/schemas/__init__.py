"""Schemas that evolve, kept in the brokers themselves.

from moldau.schemas import RegisteredAvroSerializer, SchemaStore

store = SchemaStore()
producer = moldau.Producer(value_serializer=RegisteredAvroSerializer(store, schema))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.schemas.avro.compatibility import reading_problem
    from moldau.schemas.client import RegistryClient
    from moldau.schemas.errors import IncompatibleSchema, SchemaError, SchemaNotFound
    from moldau.schemas.header import pack_header, unpack_header
    from moldau.schemas.levels import Level
    from moldau.schemas.levels import Level as Mode
    from moldau.schemas.registered import RegisteredSchema
    from moldau.schemas.serializers import RegisteredAvroSerializer
    from moldau.schemas.store import SchemaStore

# Imported on first use: a broker that serves the registry needs no client.
_HOMES = {
    "IncompatibleSchema": "errors",
    "Level": "levels",
    # The name of a level in programs that were written before there was a registry.
    "Mode": "levels",
    "RegisteredAvroSerializer": "serializers",
    "RegisteredSchema": "registered",
    "RegistryClient": "client",
    "SchemaError": "errors",
    "SchemaNotFound": "errors",
    "SchemaStore": "store",
    "pack_header": "header",
    "reading_problem": "avro.compatibility",
    "unpack_header": "header",
}

__all__ = [
    "IncompatibleSchema",
    "Level",
    "Mode",
    "RegisteredAvroSerializer",
    "RegisteredSchema",
    "RegistryClient",
    "SchemaError",
    "SchemaNotFound",
    "SchemaStore",
    "pack_header",
    "reading_problem",
    "unpack_header",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), "Level" if name == "Mode" else name)
