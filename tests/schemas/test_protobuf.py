"""Protobuf schemas: texts, descriptors, and messages that are read with another schema."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.schemas.protobuf.schema import ProtobufSchema
from moldau.schemas.schema import Dependency, InvalidSchema

OTHER = Dependency(
    "other.proto",
    """syntax = "proto2"; package o; message O { required int32 a = 1 [default = 5];
    optional string s = 2 [default = "a\\"b"]; optional group G = 3 { optional int32 q = 1; }
    extensions 100 to 200; } extend O { optional int32 ext = 100; }""",
)
EVERYTHING = """// A comment.
syntax = "proto3"; package x.y;
import "google/protobuf/timestamp.proto"; import "google/type/date.proto"; import "other.proto";
option java_package = "a.b";
message A { reserved 10 to 12, 100 to max; reserved "foo"; int32 a=1 [deprecated=true];
  google.protobuf.Timestamp t=2; map<string, B> m=3; oneof o { string s=4; B b=5; }
  optional int32 z=9; repeated int32 r=8 [packed=false]; message B { E e = 1; }
  enum E { option allow_alias=true; Z=0; Q=0; } google.type.Date d=20; o.O other=21;
  string foo_bar=22 [json_name="qq"]; }
service S { rpc M(A) returns (stream A) { option deprecated = true; } }"""
WITH_OPTIONS = """syntax = "proto3"; import "confluent/meta.proto";
message A { int32 a=1 [(confluent.field_meta).doc="hello"]; }"""
EDITION = """edition = "2023"; message A { int32 a=1 [features.field_presence=IMPLICIT];
reserved foo; }"""


@pytest.mark.parametrize("text", [EVERYTHING, OTHER.schema, WITH_OPTIONS, EDITION])
def test_the_canonical_text_means_the_same_and_is_its_own(text: str) -> None:
    schema = ProtobufSchema(text, [OTHER])
    canonical = schema.canonical()
    again = ProtobufSchema(canonical, [OTHER])
    assert again.file == schema.file
    assert again.canonical() == canonical
    assert ProtobufSchema(schema.serialized(), [OTHER]).canonical() == canonical


def proto(*body: str, syntax: str = "proto3") -> str:
    return f'syntax = "{syntax}"; message M {{ {" ".join(body)} }}'


def kinds(new: str, old: str) -> list[str]:
    return [each.kind for each in ProtobufSchema(new).problems_reading(ProtobufSchema(old))]


COMPATIBLE = [
    (proto("int32 a = 1;"), proto()),
    (proto(), proto("int32 a = 1;")),
    (proto("int64 b = 1;"), proto("int32 a = 1;")),
    (proto("bytes a = 1;"), proto("string a = 1;")),
    (proto("repeated string a = 1;"), proto("string a = 1;")),
    (proto("oneof o { int32 a = 1; }"), proto("int32 a = 1;")),
    (proto("enum E { Z = 0; Y = 1; } E e = 1;"), proto("enum E { Z = 0; } E e = 1;")),
    (proto("enum E { Z = 0; } E e = 1;"), proto("int32 e = 1;")),
    (proto("message N { int32 a = 1; } N n = 1;"), proto("message N {} N n = 1;")),
    (proto("map<string, int64> m = 1;"), proto("map<string, int32> m = 1;")),
    (proto().replace("message M", "package q; message M"), proto()),
]
INCOMPATIBLE = [
    ('syntax = "proto3"; message Other {}', proto(), "MESSAGE_REMOVED"),
    (proto("string a = 1;"), proto("int32 a = 1;"), "FIELD_SCALAR_KIND_CHANGED"),
    (proto("sint32 a = 1;"), proto("int32 a = 1;"), "FIELD_SCALAR_KIND_CHANGED"),
    (proto("M a = 1;"), proto("int32 a = 1;"), "FIELD_KIND_CHANGED"),
    (proto("message N {} M a = 1;"), proto("message N {} N a = 1;"), "FIELD_NAMED_TYPE_CHANGED"),
    (proto("repeated int32 a = 1;"), proto("int32 a = 1;"), "FIELD_NUMERIC_LABEL_CHANGED"),
    (
        proto("oneof o { int32 a = 1; int32 b = 2; }"),
        proto("int32 a = 1; int32 b = 2;"),
        "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
    ),
    (
        proto("oneof o { int32 a = 1; int32 b = 2; }"),
        proto("oneof o { int32 a = 1; } int32 b = 2;"),
        "FIELD_MOVED_TO_EXISTING_ONEOF",
    ),
    (
        proto("oneof o { int32 a = 1; }"),
        proto("oneof o { int32 a = 1; int32 b = 2; }"),
        "ONEOF_FIELD_REMOVED",
    ),
    (
        proto("required int32 a = 1;", syntax="proto2"),
        proto(syntax="proto2"),
        "REQUIRED_FIELD_ADDED",
    ),
    (proto("map<string, int32> m = 1;"), proto("repeated string m = 1;"), "FIELD_KIND_CHANGED"),
    (proto("map<string, string> m = 1;"), proto("map<string, int32> m = 1;"), "FIELD_SCALAR_KIND"),
]


@pytest.mark.parametrize(("new", "old"), COMPATIBLE)
def test_a_schema_that_reads_what_the_other_wrote(new: str, old: str) -> None:
    assert kinds(new, old) == []


@pytest.mark.parametrize(("new", "old", "kind"), INCOMPATIBLE)
def test_a_schema_that_does_not(new: str, old: str, kind: str) -> None:
    assert any(each.startswith(kind) for each in kinds(new, old))


def test_imported_messages_are_compared_too() -> None:
    text = 'syntax = "proto3"; import "n.proto"; message M { n.N n = 1; }'
    one = Dependency("n.proto", 'syntax = "proto3"; package n; message N { int32 a = 1; }')
    other = Dependency("n.proto", 'syntax = "proto3"; package n; message N { string a = 1; }')
    found = ProtobufSchema(text, [one]).problems_reading(ProtobufSchema(text, [other]))
    assert [each.kind for each in found] == ["FIELD_SCALAR_KIND_CHANGED"]


TYPES = [
    "int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "fixed32", "fixed64",
    "sfixed32", "sfixed64", "float", "double", "string", "bytes", "N", "E", "map<int32, string>",
]  # fmt: skip
FIELDS = st.tuples(st.sampled_from(TYPES), st.sampled_from(["", "repeated ", "oneof"])).map(
    lambda field: (field[0], "") if field[0].startswith("map") else field
)


@st.composite
def messages(draw: st.DrawFn, similar: dict[int, Any] | None = None) -> dict[int, Any]:
    """Fields by number; with `similar`, mostly the same ones."""
    found: dict[int, Any] = {}
    for number in (1, 2, 3):
        if similar and number in similar and draw(st.integers(0, 3)):
            found[number] = similar[number]
        elif draw(st.booleans()):
            found[number] = draw(FIELDS)
    return found


def text_of(fields: dict[int, Any], prefix: str) -> str:
    plain: list[str] = []
    oneof: list[str] = []
    for number, (kind, label) in fields.items():
        line = f"{'' if label == 'oneof' else label}{kind} {prefix}{number} = {number};"
        (oneof if label == "oneof" else plain).append(line)
    inside = f"oneof o {{ {' '.join(oneof)} }}" if oneof else ""
    kinds = "message N { int32 x = 1; } enum E { Z = 0; Y = 1; }"
    return proto(kinds, *plain, inside)


def message_class(schema: ProtobufSchema) -> type[Message]:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(schema.file.SerializeToString())
    found: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName("M"))
    return found


def fill(message: Any, number: int, kind: str, label: str) -> None:
    """Give a field a value that every type of its encoding can hold."""
    name = f"f{number}"
    if kind.startswith("map"):
        getattr(message, name)[1] = "x"
    elif kind == "N":
        inner = getattr(message, name).add() if label == "repeated " else getattr(message, name)
        inner.x = 1
    else:
        value: Any = "x" if kind == "string" else b"x" if kind == "bytes" else 1
        if label == "repeated ":
            getattr(message, name).append(value)
        else:
            setattr(message, name, value)


def value_of(message: Any, number: int) -> list[str]:
    """What a field holds, in a form that is the same for all types of an encoding."""
    field = type(message).DESCRIPTOR.fields_by_number[number]
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return [f"{key}={value[key]}" for key in value]
    found = []
    for each in value if field.is_repeated else [value]:
        each = each.decode() if isinstance(each, bytes) else each
        if isinstance(each, Message):
            each = getattr(each, "x")  # noqa: B009
        found.append(each if isinstance(each, str) else str(int(each)))
    return found


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_what_is_let_pass_reads_real_messages(data: st.DataObject) -> None:
    old = data.draw(messages())
    new = data.draw(messages(similar=old))
    reader, writer = ProtobufSchema(text_of(new, "g")), ProtobufSchema(text_of(old, "f"))
    if reader.problems_reading(writer):
        return
    written = message_class(writer)()
    for number, (kind, label) in old.items():
        if label != "oneof" or written.WhichOneof("o") is None:
            fill(written, number, kind, label)
    read = message_class(reader).FromString(written.SerializeToString())
    for number in old.keys() & new.keys():
        assert value_of(read, number) == value_of(written, number), (new, old)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message", "1:8: Expected message name"),
        (proto("Foo a = 1;"), '"Foo" is not defined'),
        (proto("int32 a = 1; int32 b = 1;"), "already been used"),
        ('syntax = "proto3"; import "no.proto";', "was not found"),
        ("message A {" * 100 + "}" * 100, "recursion limit"),
        ("\0", "not a Protobuf schema"),
    ],
)
def test_a_bad_schema_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        ProtobufSchema(text)


@pytest.mark.parametrize("name", ["../x.proto", "/etc/x.proto", ".", "a\0b", "moldau" * 100])
def test_a_reference_with_a_wild_name_writes_nothing_elsewhere(name: str) -> None:
    with pytest.raises(InvalidSchema, match="not a valid import name"):
        ProtobufSchema(proto(), [Dependency(name, proto())])


def test_files_that_import_each_other_are_refused() -> None:
    one = Dependency("a.proto", 'syntax = "proto3"; import "b.proto";')
    other = Dependency("b.proto", 'syntax = "proto3"; import "a.proto";')
    with pytest.raises(InvalidSchema, match="imports itself"):
        ProtobufSchema('syntax = "proto3"; import "a.proto";', [one, other])
