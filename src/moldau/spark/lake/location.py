"""The location of a table, and how tasks write files there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlparse

from moldau.spark.lake.errors import LakeError

SCHEMES = ("s3", "s3a", "gs", "az", "adl", "abfs", "abfss", "azure")


class Store(Protocol):
    """A place for a table's files, by their paths in it."""

    @property
    def uri(self) -> str: ...

    def create(self, name: str) -> Any: ...

    def open(self, name: str) -> Any: ...

    def read(self, name: str) -> bytes: ...

    def remove(self, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Location:
    """A local folder, or a URL that the package deltalake can write to.

    Is sent to the tasks with the `options` in it, which may hold credentials, so that drivers and
    tasks see the same store the same way.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, path: str, options: Mapping[str, str] | None) -> Location:
        parts = urlparse(path)
        if parts.scheme == "file":
            path = unquote(parts.path)
        elif "://" in path:
            if parts.scheme not in SCHEMES:
                raise LakeError(
                    f"{path}: tables can be in a local folder or at {'://, '.join(SCHEMES)}://, "
                    f"not at {parts.scheme}://"
                )
            _refuse_unsafe(path, options or {})
            return cls(path.rstrip("/"), dict(options or {}))
        return cls(os.path.abspath(path), dict(options or {}))

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri

    def create(self, name: str) -> Any:
        """Return a new file of the table, to be written from start to end: `write`, `tell`,
        `close`."""
        if not self.is_local:
            return _Upload(self, name)
        import pyarrow as pa

        path = Path(self.uri, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(path), "wb")

    def open(self, name: str) -> Any:
        """Return a file of the table, to be read."""
        if self.is_local:
            return str(Path(self.uri, name))
        from deltalake.fs import DeltaStorageHandler

        return DeltaStorageHandler(self.uri, dict(self.options)).open_input_file(name)

    def read(self, name: str) -> bytes:
        """Return all of a small file; OSError if it cannot be read."""
        if self.is_local:
            return Path(self.uri, name).read_bytes()
        with self.open(name) as file:
            return bytes(file.read())

    def list(self, folder: str) -> list[tuple[str, int]]:
        """Return the files right in a folder, each with the time of its last change in ms."""
        if self.is_local:
            found = Path(self.uri, folder)
            files = found.iterdir() if found.is_dir() else ()
            return [
                (f"{folder}/{file.name}", file.stat().st_mtime_ns // 1_000_000) for file in files
            ]
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import FileSelector

        handler = DeltaStorageHandler(self.uri, dict(self.options))
        listed = handler.get_file_info_selector(FileSelector(folder, allow_not_found=True))
        return [(file.path, file.mtime_ns // 1_000_000) for file in listed if file.is_file]

    def remove(self, name: str) -> None:
        if self.is_local:
            Path(self.uri, name).unlink(missing_ok=True)
        else:
            from deltalake.fs import DeltaStorageHandler

            DeltaStorageHandler(self.uri, dict(self.options)).delete_file(name)


class _Upload:
    """A file in an object store, through the same client and options as the table's log."""

    closed = False

    def __init__(self, location: Location, name: str) -> None:
        from deltalake._internal import DeltaFileSystemHandler

        handler = DeltaFileSystemHandler(location.uri, dict(location.options))
        self._stream: Any = handler.open_output_stream(name)
        self._written = 0

    def write(self, data: Any) -> int:
        # The stream takes nothing but bytes, and Parquet comes as Arrow's buffers.
        size = self._stream.write(bytes(data))
        self._written += size
        return int(size)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        self._stream.flush()

    def __enter__(self) -> _Upload:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.close()


def _refuse_unsafe(path: str, options: Mapping[str, str]) -> None:
    name = "AWS_S3_ALLOW_UNSAFE_RENAME"
    given = {key.upper(): value for key, value in options.items()}
    if str(given.get(name, os.environ.get(name, ""))).lower() in ("true", "1", "yes"):
        raise LakeError(
            f"{path}: with {name} two writers can overwrite each other's "
            "commits, so rows could be lost; leave it out (S3 and most similar "
            "stores support conditional writes)"
        )
