"""Protobuf schemas, parsed."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.schemas.incompatibility import Incompatibility
from moldau.schemas.protobuf.compatibility import reading_problems
from moldau.schemas.protobuf.printer import proto_text
from moldau.schemas.protobuf.protoc import MAIN, compile_proto
from moldau.schemas.schema import Dependency

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto


class ProtobufSchema:
    """A valid schema, with the files that it imports.

    The text is that of a `.proto` file, or a file descriptor in base64, as Python's client sends.
    """

    def __init__(self, text: str, dependencies: Sequence[Dependency] = ()) -> None:
        others = {each.name: _as_proto(each.schema) for each in dependencies}
        self.file, self.imports = compile_proto(_as_proto(text), others)

    def canonical(self, *, normalize: bool = False) -> str:
        return proto_text(self.known_options(), normalize=normalize)

    def known_options(self) -> FileDescriptorProto:
        """Return the file with the options of people's own as fields that have names."""
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        if "google/protobuf/descriptor.proto" not in self.imports:
            return self.file
        pool = descriptor_pool.DescriptorPool()
        for file in self.imports.values():
            pool.AddSerializedFile(file.SerializeToString())
        pool.AddSerializedFile(self.file.SerializeToString())
        name = descriptor_pb2.FileDescriptorProto.DESCRIPTOR.full_name
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        # Parsed by a class of this pool, extensions of options are known to it.
        return kind.FromString(self.file.SerializeToString())

    def serialized(self) -> str:
        """Return the file descriptor in base64."""
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        file = FileDescriptorProto()
        file.CopyFrom(self.file)
        file.name = "default" if file.name == MAIN else file.name
        return base64.b64encode(file.SerializeToString()).decode("ascii")

    def without_extensions(self) -> str:
        """Return the canonical text without extensions, and without room for any."""
        known = self.known_options()
        file = type(known)()
        file.CopyFrom(known)
        file.ClearField("extension")
        messages = list(file.message_type)
        while messages:
            message = messages.pop()
            message.ClearField("extension")
            message.ClearField("extension_range")
            messages += message.nested_type
        return proto_text(file)

    def problems_reading(self, writer: ProtobufSchema) -> list[Incompatibility]:
        """Return why this schema cannot read what the other one writes."""
        return reading_problems(
            self.file, self.imports.values(), writer.file, writer.imports.values()
        )

    @property
    def full_name(self) -> str:
        """Return the name of the first message."""
        if not self.file.message_type:
            return ""
        name = self.file.message_type[0].name
        return f"{self.file.package}.{name}" if self.file.package else name


def _as_proto(text: str) -> str:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    if any(character in text for character in ";{"):
        return text
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return text
    return proto_text(file) if file.name or file.message_type or file.enum_type else text
