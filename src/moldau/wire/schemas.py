"""kio's schema classes: loaded when first needed, and what their annotations say."""

from __future__ import annotations

import sys
from dataclasses import fields
from functools import cache
from threading import RLock
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from moldau.wire.apis import Api

# Types of fixed size, by the names that kio gives them, as `struct` writes them.
FIXED_TYPES = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}

# Held while modules of kio are imported. A thread that imports a package, which imports a module of
# its own, and one that imports that module, which needs its package first, wait for each other;
# Python notices and lets one of them fail.
importing = RLock()


@cache
def request_schema(api: int, version: int) -> type:
    """kio's class for a request."""
    with importing:
        return _index().load_request_schema(api, version)  # type: ignore[no-any-return]


@cache
def response_schema(api: int, version: int) -> type:
    """kio's class for a response."""
    with importing:
        schema: type = _index().load_response_schema(api, version)
    if api == Api.DESCRIBE_TRANSACTIONS:
        _allow_none(schema, "transaction_states", "transaction_start_time")
    return schema


def _allow_none(schema: type, array: str, name: str) -> None:
    """Let a time be missing, which Kafka writes as -1, and which kio expects to be there."""
    structs = {field.name: element_type(field.type) for field in fields(schema)}
    field = next(field for field in fields(structs[array]) if field.name == name)
    kind: Any = field.type
    if not is_optional(kind):
        field.type = kind | None


@cache
def _index() -> Any:
    # kio imports hypothesis wherever it is installed, which costs 100 ms and 12 MB and is of no
    # use here; a None in sys.modules makes that import fail, and kio goes on without.
    hide = "hypothesis" not in sys.modules
    if hide:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.index
    finally:
        if hide:
            del sys.modules["hypothesis"]
    return kio.index


def is_optional(kind: Any) -> bool:
    """Return whether an annotation allows None."""
    return get_origin(kind) is UnionType and NoneType in get_args(kind)


def is_array(kind: Any) -> bool:
    """Return whether an annotation stands for an array."""
    return get_origin(_without_none(kind)) is tuple


def element_type(kind: Any) -> Any:
    """Return the type of an array's elements; the type itself where it is no array."""
    bare = _without_none(kind)
    return get_args(bare)[0] if get_origin(bare) is tuple else bare


def _without_none(kind: Any) -> Any:
    if is_optional(kind):
        return next(arg for arg in get_args(kind) if arg is not NoneType)
    return kind
