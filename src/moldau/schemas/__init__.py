"""Schemas that evolve, kept in the brokers themselves.

from moldau.schemas import RegisteredAvroSerializer, SchemaStore

store = SchemaStore()
producer = moldau.Producer(value_serializer=RegisteredAvroSerializer(store, schema))
"""

from moldau.schemas.compatibility import reading_problem
from moldau.schemas.errors import IncompatibleSchema, SchemaError, SchemaNotFound
from moldau.schemas.header import pack_header, unpack_header
from moldau.schemas.modes import Mode
from moldau.schemas.serializers import RegisteredAvroSerializer
from moldau.schemas.state import RegisteredSchema
from moldau.schemas.store import SchemaStore

__all__ = [
    "IncompatibleSchema",
    "Mode",
    "RegisteredAvroSerializer",
    "RegisteredSchema",
    "SchemaError",
    "SchemaNotFound",
    "SchemaStore",
    "pack_header",
    "reading_problem",
    "unpack_header",
]
