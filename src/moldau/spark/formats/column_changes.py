"""Changes of columns: from those of one version of a schema to those of another."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructField, StructType

# Numbers that hold all values of the narrower ones, as Avro reads them too.
_WIDER = {
    "tinyint": ("smallint", "int", "bigint", "float", "double"),
    "smallint": ("int", "bigint", "float", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
}


@dataclass(slots=True)
class Changes:
    """Columns and fields by their paths, with types: `place.lat (double)`."""

    added: list[str] = field(default_factory=list)
    widened: list[str] = field(default_factory=list)
    # Types of which the later cannot hold all values of the earlier.
    changed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    # The other way around: the earlier type holds all values of the later.
    narrowed: list[str] = field(default_factory=list)

    @property
    def has_losses(self) -> bool:
        """Return whether the later columns cannot hold all that the earlier ones did."""
        return bool(self.changed or self.missing or self.narrowed)

    @property
    def has_only_missing(self) -> bool:
        return not (self.added or self.widened or self.changed or self.narrowed)

    def __bool__(self) -> bool:
        return any((self.added, self.widened, self.changed, self.missing, self.narrowed))

    def __str__(self) -> str:
        parts = (
            ("new", self.added),
            ("wider", self.widened),
            ("of another type", [*self.changed, *self.narrowed]),
            ("gone", self.missing),
        )
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names)


def column_changes(before: StructType, after: StructType) -> Changes:
    """Compare the columns by name, and the fields of structs in them."""
    found = Changes()
    _compare_structs(before, after, "", found)
    return found


def _compare_structs(before: StructType, after: StructType, path: str, found: Changes) -> None:
    known = {each.name: each for each in before.fields}
    for each in after.fields:
        earlier = known.pop(each.name, None)
        if earlier is None:
            found.added.append(_named(path, each))
        else:
            _compare(earlier.dataType, each.dataType, f"{path}{each.name}", found)
    found.missing += [_named(path, each) for each in known.values()]


def _compare(before: DataType, after: DataType, path: str, found: Changes) -> None:
    if isinstance(before, StructType) and isinstance(after, StructType):
        _compare_structs(before, after, f"{path}.", found)
    elif isinstance(before, ArrayType) and isinstance(after, ArrayType):
        _compare(before.elementType, after.elementType, f"{path}[]", found)
    elif isinstance(before, MapType) and isinstance(after, MapType):
        _compare(before.keyType, after.keyType, f"{path}.key", found)
        _compare(before.valueType, after.valueType, f"{path}{{}}", found)
    else:
        earlier, later = before.simpleString(), after.simpleString()
        text = f"{path} ({later}, was {earlier})"
        if earlier == later:
            return
        if _is_wider(before, after):
            found.widened.append(text)
        elif _is_wider(after, before):
            found.narrowed.append(text)
        else:
            found.changed.append(text)


def _is_wider(before: DataType, after: DataType) -> bool:
    if isinstance(before, DecimalType) and isinstance(after, DecimalType):
        whole = after.precision - after.scale >= before.precision - before.scale
        return whole and after.scale >= before.scale
    return after.simpleString() in _WIDER.get(before.simpleString(), ())


def _named(path: str, column: StructField) -> str:
    return f"{path}{column.name} ({column.dataType.simpleString()})"
