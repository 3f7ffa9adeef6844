"""Compatibility: whether messages written with one Protobuf schema can be read with another.

Fields are compared by their numbers, types by their names without the package. What the wire format
lets pass does so here: names of fields, constants of enums, added and removed fields, and scalar
types with the same encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from moldau.schemas.incompatibility import Incompatibility

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
    )

# Types with the same encoding, by the numbers of their descriptors; an enum is a number too.
_ENCODINGS = {
    1: "double", 2: "float", 3: "varint", 4: "varint", 5: "varint", 13: "varint", 8: "varint",
    14: "varint", 17: "zigzag", 18: "zigzag", 9: "string or bytes", 12: "string or bytes",
    6: "fixed64", 16: "fixed64", 7: "fixed32", 15: "fixed32", 10: "group", 11: "message",
}  # fmt: skip
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_REQUIRED, _REPEATED = 2, 3

Problems = Iterator[Incompatibility]


def reading_problems(
    reader: FileDescriptorProto,
    reader_imports: Iterable[FileDescriptorProto],
    writer: FileDescriptorProto,
    writer_imports: Iterable[FileDescriptorProto],
) -> list[Incompatibility]:
    """Return why messages of the writer's file cannot be read with the reader's."""
    new, old = _Types(reader, reader_imports), _Types(writer, writer_imports)
    found: list[Incompatibility] = []
    for name, message in old.messages.items():
        after = new.messages.get(name)
        if after is not None:
            found += _compare_messages(after, message, f"#/{name}", new, old)
        elif name in old.own and not message.options.map_entry:
            what = f"the message {name} was removed"
            found.append(Incompatibility("MESSAGE_REMOVED", f"#/{name}", what))
    return found


class _Types:
    """All messages and enums of a file and its imports, by their names without the package."""

    def __init__(self, file: FileDescriptorProto, imports: Iterable[FileDescriptorProto]) -> None:
        self.messages: dict[str, DescriptorProto] = {}
        self.enums: dict[str, EnumDescriptorProto] = {}
        self.short: dict[str, str] = {}
        self._add(file, is_own=True)
        self.own = frozenset(self.messages)
        for each in imports:
            self._add(each, is_own=False)

    def _add(self, file: FileDescriptorProto, is_own: bool) -> None:
        prefix = f".{file.package}" if file.package else ""
        # A type of another file keeps its package: it may have the name of one of ours.
        outer = "" if is_own else f"{file.package}."
        for enum in file.enum_type:
            self.short[f"{prefix}.{enum.name}"] = outer + enum.name
            self.enums[outer + enum.name] = enum
        waiting = [("", message) for message in file.message_type]
        while waiting:
            around, message = waiting.pop(0)
            name = f"{around}{message.name}"
            self.short[f"{prefix}.{name}"] = outer + name
            self.messages[outer + name] = message
            for enum in message.enum_type:
                self.short[f"{prefix}.{name}.{enum.name}"] = f"{outer}{name}.{enum.name}"
            waiting += [(f"{name}.", nested) for nested in message.nested_type]

    def name_of(self, field: FieldDescriptorProto) -> str:
        return self.short.get(field.type_name, str(field.type_name))

    def is_map(self, field: FieldDescriptorProto) -> bool:
        message = self.messages.get(self.name_of(field))
        return message is not None and message.options.map_entry


def _compare_messages(
    new: DescriptorProto, old: DescriptorProto, path: str, types: _Types, before: _Types
) -> Problems:
    fields = {field.number: field for field in new.field}
    written = {field.number: field for field in old.field}
    oneofs = {_oneof(new, field) for field in new.field} - {""}
    for number, field in written.items():
        place = f"{path}/{number}"
        after = fields.get(number)
        if after is not None:
            yield from _compare_fields(after, field, place, types, before)
        elif field.label == _REQUIRED:
            what = f"the required field {field.name} was removed"
            yield Incompatibility("REQUIRED_FIELD_REMOVED", place, what)
        elif _oneof(old, field) in oneofs:
            what = f"the field {field.name} of oneof {_oneof(old, field)} was removed"
            yield Incompatibility("ONEOF_FIELD_REMOVED", place, what)
    for number, field in fields.items():
        if number not in written and field.label == _REQUIRED:
            what = f"the required field {field.name} is new"
            yield Incompatibility("REQUIRED_FIELD_ADDED", f"{path}/{number}", what)
    yield from _compare_oneofs(new, old, path)


def _compare_fields(
    new: FieldDescriptorProto,
    old: FieldDescriptorProto,
    path: str,
    types: _Types,
    before: _Types,
) -> Problems:
    wanted, written = _ENCODINGS[new.type], _ENCODINGS[old.type]
    if types.is_map(new) != before.is_map(old):
        what = f"the field {new.name} is a map in only one of the two"
        yield Incompatibility("FIELD_KIND_CHANGED", path, what)
    elif wanted != written:
        is_scalar = not {"group", "message"} & {wanted, written}
        kind = "FIELD_SCALAR_KIND_CHANGED" if is_scalar else "FIELD_KIND_CHANGED"
        what = f"the field {new.name} is encoded as {wanted}, and was as {written}"
        yield Incompatibility(kind, path, what)
    elif new.type in (_GROUP, _MESSAGE) and not types.is_map(new):
        now, was = types.name_of(new), before.name_of(old)
        if now != was:
            what = f"the type of the field {new.name} is {now}, and was {was}"
            yield Incompatibility("FIELD_NAMED_TYPE_CHANGED", path, what)
    if (new.label == _REQUIRED) != (old.label == _REQUIRED):
        is_added = new.label == _REQUIRED
        what = f"the field {new.name} is {'required now' if is_added else 'no longer required'}"
        kind = "REQUIRED_FIELD_ADDED" if is_added else "REQUIRED_FIELD_REMOVED"
        yield Incompatibility(kind, path, what)
    is_bytes = wanted in ("string or bytes", "message", "group")
    if (new.label == _REPEATED) != (old.label == _REPEATED) and not is_bytes:
        what = f"the field {new.name} is repeated in only one of the two"
        yield Incompatibility("FIELD_NUMERIC_LABEL_CHANGED", path, what)


def _compare_oneofs(new: DescriptorProto, old: DescriptorProto, path: str) -> Problems:
    """A field that joins others in a oneof loses its value where both are written."""
    written = {field.number: _oneof(old, field) for field in old.field}
    existing = set(written.values()) - {""}
    joined: dict[str, list[str]] = {}
    for field in new.field:
        name = _oneof(new, field)
        was = written.get(field.number)
        if name and was is not None and was != name:
            joined.setdefault(name, []).append(field.name)
    for name, fields in joined.items():
        place = f"{path}/{name}"
        if name in existing:
            what = f"the field {fields[0]} joined the oneof {name}, which was there"
            yield Incompatibility("FIELD_MOVED_TO_EXISTING_ONEOF", place, what)
        elif len(fields) > 1:
            before = {written[field.number] for field in new.field if field.name in fields}
            if len(before) > 1 or before == {""}:
                what = f"the fields {' and '.join(fields)} joined the oneof {name}"
                yield Incompatibility("MULTIPLE_FIELDS_MOVED_TO_ONEOF", place, what)


def _oneof(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    """Return the oneof that a field is in; that of an `optional` field is not one of people's."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    return str(message.oneof_decl[field.oneof_index].name)
