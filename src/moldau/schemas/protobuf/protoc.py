"""The Protobuf compiler: from `.proto` texts to descriptors."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from importlib import import_module, resources
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.schemas.protobuf.printer import proto_text
from moldau.schemas.schema import InvalidSchema

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

# Files that clients import without sending them, and the modules in which Python has them.
_COMMON = {"google/type/": "google.type", "confluent/": "confluent_kafka.schema_registry.confluent"}
MAIN = "moldau_schema.proto"


def compile_proto(
    text: str, dependencies: Mapping[str, str]
) -> tuple[FileDescriptorProto, dict[str, FileDescriptorProto]]:
    """Return the descriptor of a text, and those of all files that it imports, by their names."""
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from grpc_tools import _protoc_compiler
    except ImportError:
        raise InvalidSchema("for Protobuf schemas, install moldau[protobuf]") from None
    with tempfile.TemporaryDirectory(prefix="moldau-protoc-") as folder:
        for name, content in ({MAIN: text} | dict(dependencies)).items():
            _write(Path(folder), name, content)
        for name in _common_imports((text, *dependencies.values())):
            if name not in dependencies:
                _write_common(Path(folder), name)
        known = str(resources.files("grpc_tools") / "_proto")
        out = Path(folder, "descriptors")
        include = [os.fsencode(folder), os.fsencode(known)]
        try:
            # Called for its errors: the other entry prints them to this process's stderr.
            _protoc_compiler.get_protos(MAIN.encode(), include)
        except Exception as problem:
            raise InvalidSchema(f"not a Protobuf schema: {_words(problem)}") from None
        arguments = [b"protoc", *(b"-I" + each for each in include), b"--include_imports"]
        arguments += [b"--descriptor_set_out=" + os.fsencode(out), MAIN.encode()]
        if _protoc_compiler.run_main(arguments) != 0:
            raise InvalidSchema("not a Protobuf schema")
        files = {file.name: file for file in FileDescriptorSet.FromString(out.read_bytes()).file}
    return files.pop(MAIN), files


def _write(folder: Path, name: str, text: str) -> None:
    path = Path(os.path.normpath(folder / name))
    if not path.is_relative_to(folder) or path == folder:
        raise InvalidSchema(f"{name!r} is not a valid import name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as problem:
        raise InvalidSchema(f"{name!r} is not a valid import name: {problem}") from None


def _common_imports(texts: Iterable[str]) -> list[str]:
    found = []
    for text in texts:
        for word in text.replace("'", '"').split('"')[1::2]:
            if word.endswith(".proto") and word.startswith(tuple(_COMMON)):
                found.append(word)
    return found


def _write_common(folder: Path, name: str) -> None:
    """Write a file that Python has as a module, with those that it imports itself."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    prefix = next(each for each in _COMMON if name.startswith(each))
    inner = name[len(prefix) : -len(".proto")].replace("/", ".")
    try:
        module = import_module(f"{_COMMON[prefix]}.{inner}_pb2")
    except ImportError:
        return
    file = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    _write(folder, name, proto_text(file))
    for other in file.dependency:
        if other.startswith(tuple(_COMMON)):
            _write_common(folder, other)


def _words(problem: Exception) -> str:
    errors = getattr(problem, "errors", None)
    if not callable(errors):
        return str(problem)
    found = []
    for each in errors():
        # The wheel gives names and messages as the representation of bytes.
        name, message = _plain(each.filename), _plain(each.message)
        place = "" if name == MAIN else f"{name}:"
        found.append(f"{place}{each.line + 1}:{each.column + 1}: {message}")
    return "; ".join(found[:5]) or str(problem)


def _plain(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
