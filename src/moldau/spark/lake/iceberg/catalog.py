"""Catalogs: where a table's name leads to its newest metadata.

Without settings, the catalog is an SQLite file in the warehouse, `catalog.db`: enough for all
drivers of one machine. With them it is any that pyiceberg knows, by pyiceberg's own names: `type`
(rest, glue, hive, sql, …), `uri`, and so on.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlparse

from moldau.spark.lake.errors import LakeError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

T = TypeVar("T")

CATALOG_FILE = "catalog.db"
# pyiceberg's own name for the catalog of those who name none; rows of an SQL catalog carry it.
CATALOG_NAME = "default"
_SQLITE = "sqlite:///"
# Sinks that start together make the same catalog and namespace: each looks first and then creates,
# so all but one may fail, and find it there the next time.
TRIES = 5
PAUSE_S = 0.1
# For tables that we make. A streaming table has a metadata file and a manifest for every batch:
# old files go, and many small manifests become one.
TABLE_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "write.parquet.compression-codec": "zstd",
    "commit.manifest-merge.enabled": "true",
}


class CatalogTable:
    """A table by its name, `namespace.table`, in a catalog. The catalog is opened on first use."""

    def __init__(self, table: str, warehouse: str = "", catalog: Mapping[str, str] | None = None):
        self.identifier = tuple(table.split("."))
        if len(self.identifier) < 2 or not all(self.identifier):
            raise LakeError(f"{table!r} is not a catalog table name; write namespace.table")
        self.name = table
        self._properties = _properties(table, warehouse, dict(catalog or {}))
        self._catalog: Catalog | None = None

    def open(self) -> Table | None:
        """Return the table as it is now; None where there is none, and nothing is made."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        if self._has_no_file():
            return None
        try:
            return self._opened().load_table(self.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except LakeError:
            raise
        except Exception as problem:
            # Each kind of catalog has errors of its own, and its client's.
            raise self._unreachable(problem) from problem

    def create(self, schema: Schema, spec: PartitionSpec) -> None:
        """Make the table, unless another writer has just done so."""
        from pyiceberg.exceptions import TableAlreadyExistsError

        catalog = self._opened()

        def make() -> None:
            catalog.create_namespace_if_not_exists(self.identifier[:-1])
            catalog.create_table(
                self.identifier, schema, partition_spec=spec, properties=TABLE_PROPERTIES
            )

        with suppress(TableAlreadyExistsError):
            self._tried(make, final=TableAlreadyExistsError)

    def _opened(self) -> Catalog:
        if self._catalog is None:
            from pyiceberg.catalog import load_catalog

            path = _file_of(self._properties)
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            settings = dict(self._properties)
            name = settings.pop("name", CATALOG_NAME)
            self._catalog = self._tried(lambda: load_catalog(name, **settings))
        return self._catalog

    def _tried(self, make: Callable[[], T], final: type[Exception] | tuple[()] = ()) -> T:
        """Do what another writer may be doing just now; LakeError if it fails again and again."""
        for attempt in range(1, TRIES + 1):
            try:
                return make()
            except final:
                raise
            except Exception as problem:
                if attempt == TRIES:
                    raise self._unreachable(problem) from problem
                time.sleep(random.uniform(0, PAUSE_S * attempt))
        raise AssertionError

    def _has_no_file(self) -> bool:
        path = _file_of(self._properties)
        return path is not None and not path.exists()

    def _unreachable(self, problem: Exception) -> LakeError:
        where = self._properties.get("uri") or self._properties.get("type", "")
        words = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        return LakeError(f"{self.name}: the catalog at {_without_password(where)} failed: {words}")


def is_rest(catalog: Mapping[str, str]) -> bool:
    """Return whether these settings are of a REST catalog, whose warehouses have names."""
    kind = catalog.get("type")
    return catalog.get("uri", "").startswith("http") if kind is None else kind.lower() == "rest"


def _properties(table: str, warehouse: str, given: dict[str, str]) -> dict[str, str]:
    if warehouse:
        is_folder = _is_path(warehouse) and not is_rest(given)
        given["warehouse"] = _uri(warehouse) if is_folder else warehouse
    if "type" not in given and "uri" not in given:
        if not _is_path(warehouse):
            raise LakeError(
                f"{table}: give 'warehouse', a local folder for tables and their catalog, or "
                "'catalog' with the settings of another catalog"
            )
        path = os.path.join(_local(warehouse), CATALOG_FILE)
        given |= {"type": "sql", "uri": f"{_SQLITE}{path}"}
    return given


def _is_path(warehouse: str) -> bool:
    return bool(warehouse) and ("://" not in warehouse or warehouse.startswith("file://"))


def _local(path: str) -> str:
    return unquote(urlparse(path).path) if path.startswith("file://") else os.path.abspath(path)


def _uri(path: str) -> str:
    return Path(_local(path)).as_uri()


def _file_of(properties: Mapping[str, str]) -> Path | None:
    """Return the file of an SQLite catalog; None for others."""
    uri = properties.get("uri", "")
    path = uri.removeprefix(_SQLITE)
    return Path(path) if uri.startswith(_SQLITE) and path not in ("", ":memory:") else None


def _without_password(uri: str) -> str:
    parts = urlparse(uri)
    if not parts.password:
        return uri
    return uri.replace(f":{parts.password}@", ":…@", 1)
