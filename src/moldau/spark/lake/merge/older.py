"""Older rows: which of two rows with the same keys is older, decided on columns of Arrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from moldau.spark.names import RECORD_ORDER


@dataclass(frozen=True, slots=True)
class Order:
    """The order of rows: by columns, by the records that they were made of, or by batches alone.

    `moldau.spark.lake.order` says what each of them means.
    """

    columns: tuple[str, ...] = ()
    is_by_record: bool = False

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that have to be read to compare rows."""
        return self.columns or ((RECORD_ORDER,) if self.is_by_record else ())

    def older(self, these: pa.Table, those: pa.Table) -> pa.Array:
        """Return of each of `these` rows whether it is older than that of `those`."""
        if self.columns:
            return _less(self.columns, these, those)
        if self.is_by_record:
            return _is_earlier_record(these, those)
        return _all(False, these.num_rows)

    def same(self, these: pa.Table, those: pa.Table) -> pa.Array:
        """Return of each of `these` rows whether that of `those` is equal by the columns."""
        same = _all(True, these.num_rows)
        for name in self.columns:
            same = pc.and_(same, _is_same(_whole(these.column(name)), _whole(those.column(name))))
        return same

    def known(self, rows: pa.Table) -> pa.Array:
        """Return of each row whether it has an order at all: nothing is older than one without."""
        if not self.columns:
            return pc.is_valid(_part(rows, "time"))
        known = _all(False, rows.num_rows)
        for name in self.columns:
            known = pc.or_(known, pc.is_valid(_whole(rows.column(name))))
        return known


def _less(columns: tuple[str, ...], these: pa.Table, those: pa.Table) -> pa.Array:
    less, equal = _all(False, these.num_rows), _all(True, these.num_rows)
    for name in columns:
        mine, other = _whole(these.column(name)), _whole(those.column(name))
        less = pc.or_(less, pc.and_(equal, _comes_before(mine, other)))
        equal = pc.and_(equal, _is_same(mine, other))
    return less


def _comes_before(mine: pa.Array, other: pa.Array) -> pa.Array:
    """Null comes before everything, and what is no number after everything."""
    before = pc.fill_null(pc.less(mine, other), False)
    if pa.types.is_floating(mine.type):
        is_last = pc.and_(_is_nan(other), pc.invert(_is_nan(mine)))
        before = pc.or_(before, pc.and_(is_last, pc.is_valid(mine)))
    return pc.or_(before, pc.and_(pc.is_null(mine), pc.is_valid(other)))


def _is_same(mine: pa.Array, other: pa.Array) -> pa.Array:
    same = pc.fill_null(pc.equal(mine, other), False)
    if pa.types.is_floating(mine.type):
        same = pc.or_(same, pc.and_(_is_nan(mine), _is_nan(other)))
    return pc.or_(same, pc.and_(pc.is_null(mine), pc.is_null(other)))


def _is_nan(values: pa.Array) -> pa.Array:
    return pc.fill_null(pc.is_nan(values), False)


def _is_earlier_record(these: pa.Table, those: pa.Table) -> pa.Array:
    # A later offset of the same partition is newer whatever its time. An earlier one is not always
    # older: a topic that was created again counts from zero.
    is_later = pc.and_kleene(
        pc.and_kleene(
            pc.equal(_part(these, "topic"), _part(those, "topic")),
            pc.equal(_part(these, "partition"), _part(those, "partition")),
        ),
        pc.greater_equal(_part(these, "offset"), _part(those, "offset")),
    )
    is_earlier = pc.less(_part(these, "time"), _part(those, "time"))
    return pc.fill_null(pc.and_kleene(is_earlier, pc.invert(is_later)), False)


def _part(rows: pa.Table, field: str) -> pa.Array:
    return pc.struct_field(_whole(rows.column(RECORD_ORDER)), field)


def _whole(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _all(value: bool, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(value), length)
