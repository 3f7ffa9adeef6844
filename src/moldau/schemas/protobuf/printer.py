"""The canonical text of a Protobuf schema: the same for all ways to write the same file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
        OneofDescriptorProto,
        ServiceDescriptorProto,
    )

_SCALARS = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32",
    8: "bool", 9: "string", 12: "bytes", 13: "uint32", 15: "sfixed32", 16: "sfixed64",
    17: "sint32", 18: "sint64",
}  # fmt: skip
_GROUP, _MESSAGE, _STRING, _BYTES, _ENUM = 10, 11, 9, 12, 14
_OPTIONAL, _REQUIRED, _REPEATED = 1, 2, 3
_LAST_NUMBER = 1 << 29
_LAST_ENUM_VALUE = (1 << 31) - 1


def proto_text(file: FileDescriptorProto, *, normalize: bool = False) -> str:
    """Print a file; normalized, imports are in order and every type has its full name."""
    return "\n".join(_Printer(file, normalize).lines()) + "\n"


class _Printer:
    def __init__(self, file: FileDescriptorProto, normalize: bool) -> None:
        self._file = file
        self._normalize = normalize
        self._is_proto3 = file.syntax == "proto3"
        self._has_edition = file.syntax == "editions"

    def lines(self) -> Iterator[str]:
        file = self._file
        if self._has_edition:
            yield f'edition = "{_edition(file)}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        yield from self._imports()
        options = list(_options(file.options))
        if options:
            yield ""
            yield from (f"option {option};" for option in options)
        for message in file.message_type:
            yield ""
            yield from self._message(message)
        for enum in file.enum_type:
            yield ""
            yield from self._enum(enum)
        yield from self._extensions(file.extension)
        for service in file.service:
            yield ""
            yield from self._service(service)

    def _imports(self) -> Iterator[str]:
        file = self._file
        names = list(enumerate(file.dependency))
        if self._normalize:
            names.sort(key=lambda each: each[1])
        if names:
            yield ""
        for index, name in names:
            kind = (
                "public " if index in file.public_dependency
                else "weak " if index in file.weak_dependency else ""
            )  # fmt: skip
            yield f"import {kind}{_quoted(name)};"

    def _message(self, message: DescriptorProto, head: str | None = None) -> Iterator[str]:
        yield f"{head or f'message {message.name}'} {{"
        yield from _indented(self._body(message))
        yield "}"

    def _body(self, message: DescriptorProto) -> Iterator[str]:
        yield from (f"option {option};" for option in _options(message.options, "map_entry"))
        ranges = [
            _range(each.start, each.end - 1, _LAST_NUMBER - 1) for each in message.reserved_range
        ]
        if ranges:
            yield f"reserved {', '.join(ranges)};"
        if message.reserved_name:
            yield f"reserved {', '.join(self._reserved(message.reserved_name))};"
        for each in message.extension_range:
            options = _options(each.options)
            more = ", ".join(options)
            last = _range(each.start, each.end - 1, _LAST_NUMBER - 1)
            yield f"extensions {last}{f' [{more}]' if more else ''};"
        yield from self._fields(message)
        maps = {each.name for each in message.nested_type if each.options.map_entry}
        groups = {
            field.type_name.rpartition(".")[2] for field in message.field if field.type == _GROUP
        }
        for nested in message.nested_type:
            if nested.name not in maps and nested.name not in groups:
                yield from self._message(nested)
        for enum in message.enum_type:
            yield from self._enum(enum)
        yield from self._extensions(message.extension)

    def _reserved(self, names: Iterable[str]) -> list[str]:
        return list(names) if self._has_edition else [_quoted(name) for name in names]

    def _fields(self, message: DescriptorProto) -> Iterator[str]:
        seen: set[int] = set()
        for field in message.field:
            if field.HasField("oneof_index") and not field.proto3_optional:
                index = field.oneof_index
                if index not in seen:
                    seen.add(index)
                    inside = [
                        each
                        for each in message.field
                        if each.HasField("oneof_index") and each.oneof_index == index
                    ]
                    yield from self._oneof(message.oneof_decl[index], inside, message)
            else:
                yield from self._field(field, message)

    def _oneof(
        self,
        oneof: OneofDescriptorProto,
        fields: Iterable[FieldDescriptorProto],
        message: DescriptorProto,
    ) -> Iterator[str]:
        yield f"oneof {oneof.name} {{"
        yield from _indented(f"option {option};" for option in _options(oneof.options))
        for field in fields:
            yield from _indented(self._field(field, message, in_oneof=True))
        yield "}"

    def _field(
        self, field: FieldDescriptorProto, message: DescriptorProto | None, in_oneof: bool = False
    ) -> Iterator[str]:
        kind = self._type(field, message)
        label = "" if in_oneof or kind.startswith("map<") else self._label(field)
        options = list(self._field_options(field))
        more = f" [{', '.join(options)}]" if options else ""
        if field.type == _GROUP and message is not None:
            name = field.type_name.rpartition(".")[2]
            group = next(each for each in message.nested_type if each.name == name)
            yield from self._message(group, f"{label}group {name} = {field.number}{more}")
        else:
            yield f"{label}{kind} {field.name} = {field.number}{more};"

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.label == _REPEATED:
            return "repeated "
        if field.label == _REQUIRED and not self._has_edition:
            return "required "
        if field.proto3_optional or not (self._is_proto3 or self._has_edition):
            return "optional "
        return ""

    def _type(self, field: FieldDescriptorProto, message: DescriptorProto | None) -> str:
        scalar = _SCALARS.get(field.type)
        if scalar is not None:
            return scalar
        if message is not None and field.label == _REPEATED and field.type == _MESSAGE:
            name = field.type_name.rpartition(".")[2]
            for nested in message.nested_type:
                if nested.name == name and nested.options.map_entry:
                    key, value = nested.field
                    return f"map<{self._type(key, None)}, {self._type(value, None)}>"
        return str(field.type_name)

    def _field_options(self, field: FieldDescriptorProto) -> Iterator[str]:
        if field.HasField("default_value"):
            is_text = field.type in (_STRING, _BYTES)
            # A default of bytes is kept with its escapes.
            text = field.default_value
            yield f"default = {_quoted(text, is_escaped=field.type == _BYTES) if is_text else text}"
        if field.json_name and field.json_name != _json_name(field.name) and not field.extendee:
            yield f"json_name = {_quoted(field.json_name)}"
        yield from _options(field.options)

    def _enum(self, enum: EnumDescriptorProto) -> Iterator[str]:
        yield f"enum {enum.name} {{"
        body = [f"option {option};" for option in _options(enum.options)]
        for value in enum.value:
            options = ", ".join(_options(value.options))
            body.append(f"{value.name} = {value.number}{f' [{options}]' if options else ''};")
        ranges = [_range(each.start, each.end, _LAST_ENUM_VALUE) for each in enum.reserved_range]
        if ranges:
            body.append(f"reserved {', '.join(ranges)};")
        if enum.reserved_name:
            body.append(f"reserved {', '.join(self._reserved(enum.reserved_name))};")
        yield from _indented(body)
        yield "}"

    def _extensions(self, fields: Iterable[FieldDescriptorProto]) -> Iterator[str]:
        for field in fields:
            yield f"extend {field.extendee} {{"
            yield from _indented(self._field(field, None))
            yield "}"

    def _service(self, service: ServiceDescriptorProto) -> Iterator[str]:
        yield f"service {service.name} {{"
        body = [f"option {option};" for option in _options(service.options)]
        for method in service.method:
            asked = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
            given = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
            head = f"rpc {method.name} ({asked}) returns ({given})"
            options = [f"option {option};" for option in _options(method.options)]
            body += [f"{head} {{", *_indented(options), "}"] if options else [f"{head};"]
        yield from _indented(body)
        yield "}"


def _options(options: Any, *without: str) -> Iterator[str]:
    """Print what is set; options of people's own are known if their file is in the pool."""
    from google.protobuf import text_format

    for field, value in options.ListFields():
        if field.name in without:
            continue
        name = f"({field.full_name})" if field.is_extension else field.name
        for each in value if field.is_repeated else [value]:
            if field.message_type is not None:
                inner = text_format.MessageToString(each, as_one_line=True)
                yield f"{name} = {{ {inner} }}"
            elif field.enum_type is not None:
                yield f"{name} = {field.enum_type.values_by_number[each].name}"
            elif isinstance(each, bool):
                yield f"{name} = {'true' if each else 'false'}"
            elif isinstance(each, str):
                yield f"{name} = {_quoted(each)}"
            elif isinstance(each, bytes):
                text = text_format.text_encoding.CEscape(each, False)
                yield f"{name} = {_quoted(text, is_escaped=True)}"
            else:
                yield f"{name} = {each}"


def _edition(file: FileDescriptorProto) -> str:
    name = type(file).DESCRIPTOR.fields_by_name["edition"].enum_type.values_by_number
    return str(name[file.edition].name).removeprefix("EDITION_")


def _range(first: int, last: int, greatest: int) -> str:
    if first == last:
        return str(first)
    return f"{first} to {'max' if last >= greatest else last}"


def _quoted(text: str, is_escaped: bool = False) -> str:
    if not is_escaped:
        text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        text = text.replace('"', '\\"').replace("\0", "\\000")
    return f'"{text}"'


def _json_name(name: str) -> str:
    """lowerCamelCase, as the compiler makes it of a field's name."""
    found = []
    is_next_upper = False
    for character in name:
        if character == "_":
            is_next_upper = True
        else:
            found.append(character.upper() if is_next_upper else character)
            is_next_upper = False
    return "".join(found)


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
