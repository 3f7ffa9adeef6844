"""The rules of rows in a sink: its mode, their keys and their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import pyarrow as pa

from moldau.spark.lake.errors import LakeError, SchemaConflict
from moldau.spark.lake.files import FileWritten
from moldau.spark.lake.order import ALONE
from moldau.spark.lake.schema import Fit, arrow_schema
from moldau.spark.names import RECORD_ORDER

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Mode = Literal["append", "upsert", "complete"]


@dataclass(frozen=True, slots=True)
class RowRules:
    """What a sink does with rows, as its settings say; ValueError if they contradict each other."""

    table: str
    mode: Mode
    keys: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    delete_where: str = ""

    def __post_init__(self) -> None:
        modes = get_args(Mode)
        if self.mode not in modes:
            raise ValueError(f"mode is {self.mode!r}, but must be one of {', '.join(modes)}")
        if (self.mode == "upsert") != bool(self.keys):
            raise ValueError(
                f"keys are needed for upsert, and only for upsert: mode is {self.mode!r}"
            )
        if self.mode != "upsert" and (self.order_by or self.delete_where):
            raise ValueError(f"order_by and delete_where are for upsert: mode is {self.mode!r}")

    def stored(self, schema: StructType) -> pa.Schema:
        """Return what the table keeps of a batch: everything, except the record order if there is
        `order_by`.
        """
        given = arrow_schema(self.table, schema)
        if self.order_by and RECORD_ORDER in given.names:
            return given.remove(given.get_field_index(RECORD_ORDER))
        return given

    def order_columns(self, fitted: Fit) -> tuple[str, ...]:
        names = dict(fitted.columns)
        return tuple(names[name] for name in self.order_by)

    def require_columns(self, fitted: Fit) -> None:
        """SchemaConflict if a batch lacks what its rows are compared by."""
        for name in self.keys:
            if name not in fitted.schema.names:
                raise SchemaConflict(
                    self.table, name, "is a key, but not in the batch", "select it, or change keys"
                )
        given = dict(fitted.columns)
        for name in self.order_by:
            if name not in given:
                raise SchemaConflict(
                    self.table, name, "is in order_by, but not in the batch", "select it"
                )
            kind = fitted.schema.field(given[name]).type
            if pa.types.is_nested(kind):
                raise SchemaConflict(
                    self.table, name, f"is {kind}, which has no order", "choose another order_by"
                )

    def require_values(self, files: Sequence[FileWritten]) -> None:
        """LakeError if rows that were written have no key, or no order where they need one."""
        for file in files:
            for name, nulls in file.nulls.items():
                if nulls and name == ALONE:
                    raise LakeError(
                        f"{self.table}: {nulls} or more of {', '.join(self.keys)} have several "
                        "rows in the batch, and nothing says which is newer; give order_by"
                    )
                if nulls:
                    why = "a key" if name in self.keys else "declared not null"
                    raise SchemaConflict(
                        self.table,
                        name,
                        f"is {why}, but null in {nulls} rows or more of the batch",
                        "filter them out, or fill them",
                    )
