"""The place of a table's files, for tasks: a local folder, or a store by pyiceberg's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class TableStore:
    """A folder of a table, by its URI; `properties` may hold credentials, and go to the tasks.

    Where it is local, tasks need no pyiceberg.
    """

    uri: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, table: Table) -> TableStore:
        """Return where the table wants its data."""
        folder = table.properties.get("write.data.path") or f"{table.location().rstrip('/')}/data"
        return cls(folder.rstrip("/"), dict(table.io.properties))

    def path(self, name: str) -> str:
        """Return the whole path of a file, as the table's metadata has it."""
        return f"{self.uri}/{name}"

    def create(self, name: str) -> Any:
        local = self._local(name)
        if local is None:
            return self._io().new_output(self.path(name)).create(overwrite=True)
        import pyarrow as pa

        local.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(local), "wb")

    def open(self, name: str) -> Any:
        local = self._local(name)
        return self._io().new_input(self.path(name)).open() if local is None else str(local)

    def read(self, name: str) -> bytes:
        """Return all of a small file; OSError if it cannot be read."""
        local = self._local(name)
        if local is not None:
            return local.read_bytes()
        with self.open(name) as file:
            return bytes(file.read())

    def remove(self, name: str) -> None:
        local = self._local(name)
        if local is None:
            self._io().delete(self.path(name))
        else:
            local.unlink(missing_ok=True)

    def _local(self, name: str) -> Path | None:
        if self.uri.startswith("file:"):
            return Path(unquote(urlparse(self.uri).path), name)
        return Path(self.uri, name) if "://" not in self.uri else None

    def _io(self) -> FileIO:
        from pyiceberg.io import load_file_io

        return load_file_io(dict(self.properties), self.uri)
