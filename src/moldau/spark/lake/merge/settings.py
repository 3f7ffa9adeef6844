"""The settings of a merge, and what they ask of a batch's columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from moldau.spark.lake.errors import LakeError, SchemaConflict
from moldau.spark.lake.files import FileWritten
from moldau.spark.lake.merge.history import IS_CURRENT, VALID_FROM, VALID_TO
from moldau.spark.lake.merge.older import Order
from moldau.spark.lake.order import ALONE, last_rows
from moldau.spark.lake.schema import Fit, arrow_schema
from moldau.spark.names import RECORD_ORDER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

Scd = Literal[1, 2]


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """By what rows are merged, and how; without keys they are not."""

    keys: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    delete_where: str = ""
    delete_retention: timedelta = timedelta(days=7)
    merge_where: str = ""
    scd: Scd = 1
    # The column with the moment from which a row of a history is valid.
    valid_from: str = ""

    def __post_init__(self) -> None:
        others = (self.order_by, self.delete_where, self.merge_where, self.valid_from)
        if not self.keys and (any(others) or self.scd != 1):
            raise ValueError(
                "order_by, delete_where, merge_where, scd and valid_from are for upsert"
            )
        if self.scd not in (1, 2):
            raise ValueError(f"scd is {self.scd!r}, but must be 1 or 2")
        if self.scd == 2 and not self.order_by:
            raise ValueError("scd = 2 needs order_by, the order of a row's versions")
        if self.scd == 2 and self.merge_where:
            raise ValueError("merge_where is for scd = 1: a history keeps every event")
        if self.scd == 1 and self.valid_from:
            raise ValueError("valid_from is for scd = 2")
        if self.delete_retention < timedelta():
            raise ValueError("delete_retention must not be negative")

    @property
    def kept_deletes(self) -> timedelta:
        """How long deletes are remembered: a history ends versions by them, so for good there."""
        return timedelta.max if self.scd == 2 else self.delete_retention

    @property
    def moment(self) -> str:
        return self.valid_from or (self.order_by[0] if self.order_by else "")

    def stored(
        self,
        path: str,
        schema: StructType,
        table: Collection[str],
        partition_by: Sequence[str] = (),
    ) -> pa.Schema:
        """Return what the table keeps of a batch: everything, except the record order if there is
        `order_by`, and a column that only says which rows delete; and what a history adds.

        `table` has the names of the columns that the table has already.
        """
        given = arrow_schema(path, schema)
        left_out = {RECORD_ORDER} if self.order_by else set()
        flag = self.delete_where.strip("` ").lower()
        if flag not in {name.lower() for name in table}:
            left_out.update(name for name in given.names if name.lower() == flag)
        left_out -= {*self.keys, *self.order_by, *partition_by}
        fields = [field for field in given if field.name not in left_out]
        return pa.schema([*fields, *(self._validity(path, given) if self.scd == 2 else ())])

    def _validity(self, path: str, given: pa.Schema) -> list[pa.Field]:
        taken = {name.lower() for name in given.names} & {VALID_FROM, VALID_TO, IS_CURRENT}
        if taken:
            name = min(taken)
            raise SchemaConflict(path, name, "is a name that scd = 2 reserves", "rename the column")
        if self.moment not in given.names:
            raise SchemaConflict(
                path, self.moment, "is not in the batch, but valid_from needs it", "select it"
            )
        kind = given.field(self.moment).type
        return [
            pa.field(VALID_FROM, kind),
            pa.field(VALID_TO, kind),
            pa.field(IS_CURRENT, pa.bool_()),
        ]

    def order_columns(self, fitted: Fit) -> tuple[str, ...]:
        names = dict(fitted.columns)
        return tuple(names[name] for name in self.order_by)

    def order(self, fitted: Fit) -> Order:
        return Order(self.order_columns(fitted), RECORD_ORDER in fitted.schema.names)

    def counted(self, fitted: Fit) -> set[str]:
        """Return the columns that must not be null."""
        events = {*self.order_columns(fitted), VALID_FROM} if self.scd == 2 else set()
        return {*self.keys, *events}

    def staged(self, batch: DataFrame, fitted: Fit) -> DataFrame:
        """Return the rows that are merged: of each key the last, or each event of a history."""
        from pyspark.sql import functions as f

        order_by = self.order_columns(fitted)
        keys: tuple[str, ...] = self.keys
        if self.scd == 2:
            moment = f.col(quoted(self.moment))
            kind = batch.schema[self.moment].dataType
            batch = batch.withColumns(
                {
                    VALID_FROM: moment,
                    VALID_TO: f.lit(None).cast(kind),
                    IS_CURRENT: f.lit(True),
                }
            )
            keys = tuple(dict.fromkeys([*self.keys, *order_by]))
        return last_rows(batch, columns_of(fitted), keys, order_by, self.delete_where)

    def require_columns(self, path: str, fitted: Fit) -> None:
        """SchemaConflict if a column that is needed is not there, or cannot be compared."""
        for name in self.keys:
            if name not in fitted.schema.names:
                raise SchemaConflict(
                    path, name, "is a key, but not in the batch", "select it, or change keys"
                )
            kind = fitted.schema.field(name).type
            if pa.types.is_nested(kind):
                raise SchemaConflict(
                    path, name, f"is {kind}, which cannot be a key", "choose another column"
                )
        given = dict(fitted.columns)
        for name in self.order_by:
            if name not in given:
                raise SchemaConflict(
                    path, name, "is in order_by, but not in the batch", "select it"
                )
            kind = fitted.schema.field(given[name]).type
            if pa.types.is_nested(kind):
                raise SchemaConflict(
                    path, name, f"is {kind}, which has no order", "choose another order_by"
                )

    def require_values(self, path: str, files: Sequence[FileWritten]) -> None:
        """LakeError if rows lack a value that they need, or nothing says which is newer."""
        for file in files:
            for name, nulls in file.nulls.items():
                if nulls and name == ALONE:
                    raise LakeError(
                        f"{path}: {nulls} or more of {', '.join(self.keys)} have several rows in "
                        "the batch, and nothing says which row is newer; give order_by"
                    )
                if nulls:
                    raise SchemaConflict(
                        path,
                        name,
                        f"is {self._why(name)}, but null in {nulls} rows or more of the batch",
                        "filter them out, or fill them",
                    )

    def require_history(
        self,
        path: str,
        table: Collection[str],
        has_rows: Callable[[], bool],
        given: Collection[str] = (),
    ) -> None:
        """LakeError if the table, with columns of these names, has rows without a history, or has a
        history that this merge does not keep.

        `given` are the columns of the batch: one that brings the columns of a history keeps it
        itself.
        """
        history = {VALID_FROM, VALID_TO, IS_CURRENT}
        if self.keys and self.scd == 1 and history <= {*table} and not history <= {*given}:
            # All versions of a row have the same keys: each would be replaced by the new row.
            raise LakeError(
                f"{path} has a history ({VALID_FROM}, {VALID_TO}, {IS_CURRENT}), which an upsert "
                "with scd = 1 would spoil; set scd = 2, or write to another table"
            )
        if self.scd == 2 and IS_CURRENT not in table and has_rows():
            raise LakeError(
                f"{path} has rows without a history, which scd = 2 cannot continue; write to "
                "another table"
            )

    def _why(self, name: str) -> str:
        if name in self.keys:
            return "a key"
        if self.scd == 2 and name in (*self.order_by, VALID_FROM):
            return "needed for the history"
        return "declared not null"


def columns_of(fitted: Fit) -> list[Column]:
    """Return the columns of a batch under their names in the table."""
    from pyspark.sql import functions as f

    return [f.col(quoted(given)).alias(name) for given, name in fitted.columns]


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
