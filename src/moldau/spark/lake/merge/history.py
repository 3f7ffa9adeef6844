"""History: the versions of each key, and from when to when each of them was valid.

Events of a key follow each other in their order. A version is valid from its event's moment to that
of the next event, whether that is another version or a delete; the last version is current. So the
table follows from the set of events alone, in whatever order they come, and an event that comes
late finds its place: the version before it ends earlier, and it ends where the next one begins.

Of two events with the same keys and order, the one that comes later takes the other's place.

What decides travels as a timeline: keys, order, VALID_FROM, VALID_TO, IS_CURRENT, and where each
entry comes from (KIND, FILE, ROW).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.spark.lake.files import FileWritten, Folders
from moldau.spark.lake.merge.deleted_keys import MarksFile, MarksPlan, read_marks
from moldau.spark.lake.merge.matches import join, matches
from moldau.spark.lake.merge.older import Order
from moldau.spark.lake.merge.staged import INDEX, ROW
from moldau.spark.lake.merge.target import TableFile
from moldau.spark.lake.merge.upsert import MergePlan
from moldau.spark.lake.order import DELETES

VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
KIND, FILE, IS_GONE = "__moldau_kind", "__moldau_file", "__moldau_gone"


class Kind(IntEnum):
    """Where an entry comes from. Of equal entries the greatest counts: a row of the table is there
    because it came after the delete, and the batch came after both."""

    DELETED = 0
    VERSION = 1
    EVENT = 2
    DELETE = 3


def timeline_schema(table: pa.Schema, keys: Sequence[str], order: Order) -> pa.Schema:
    names = dict.fromkeys([*keys, *order.columns, VALID_FROM, VALID_TO, IS_CURRENT])
    return pa.schema(
        [
            *(table.field(name).with_nullable(True) for name in names),
            pa.field(KIND, pa.int32()),
            pa.field(FILE, pa.int32()),
            pa.field(ROW, pa.int64()),
        ]
    )


def keys_of(plan: MergePlan) -> pa.Table:
    """Return each key of the staged rows once, with a number."""
    found = plan.staged.read(plan.keys).group_by(list(plan.keys), use_threads=False).aggregate([])
    return found.append_column(INDEX, pa.array(np.arange(found.num_rows, dtype=np.int64)))


def versions_in(
    plan: MergePlan, source: pa.Table, file: TableFile, number: int
) -> Iterator[pa.RecordBatch]:
    """Yield the versions of these keys in a file of the table."""
    schema = timeline_schema(plan.write.schema, plan.keys, plan.order)
    stored = [name for name in schema.names if name not in (KIND, FILE, ROW)]
    with file.open(plan.write) as opened:
        for group, found in matches(opened, source, plan.keys, stored):
            rows = pc.add(found.column(ROW), opened.rows_before(group))
            yield from _entries(found.drop([ROW, INDEX]), Kind.VERSION, number, rows, schema)


def deletes_in(
    plan: MergePlan, source: pa.Table, marks: MarksPlan, file: MarksFile
) -> Iterator[pa.RecordBatch]:
    """Yield the deletes of these keys that are known already."""
    schema = timeline_schema(plan.write.schema, plan.keys, plan.order)
    for rows in read_marks(marks, file):
        found = rows.take(join(rows, source, plan.keys).column(ROW))
        nothing = pa.nulls(found.num_rows, pa.int64())
        yield from _entries(found, Kind.DELETED, -1, nothing, schema)


def events_in(plan: MergePlan, number: int, as_number: int) -> Iterator[pa.RecordBatch]:
    """Yield the events of a staged file."""
    schema = timeline_schema(plan.write.schema, plan.keys, plan.order)
    file = plan.staged.files[number]
    for first, batch in plan.staged.batches(file):
        rows = pa.Table.from_batches([batch])
        numbers = pa.array(np.arange(batch.num_rows) + first - file.first)
        for kind, wanted in (
            (Kind.EVENT, pc.invert(batch.column(DELETES))),
            (Kind.DELETE, batch.column(DELETES)),
        ):
            yield from _entries(
                rows.filter(wanted), kind, as_number, numbers.filter(wanted), schema
            )


def _entries(
    rows: pa.Table, kind: Kind, number: int, numbers: Any, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    if rows.num_rows == 0:
        return
    made = {
        KIND: pa.repeat(pa.scalar(int(kind), pa.int32()), rows.num_rows),
        FILE: pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows),
        ROW: numbers,
    }
    arrays = []
    for each in schema:
        found = made.get(each.name)
        if found is None:
            known = each.name in rows.schema.names
            found = rows.column(each.name) if known else pa.nulls(rows.num_rows, each.type)
        arrays.append(found.cast(each.type))
    yield from pa.Table.from_arrays(arrays, schema=schema).combine_chunks().to_batches()


def outcomes(keys: Sequence[str], order: Order, timeline: pa.Table) -> pa.Table:
    """Return what changes: FILE, ROW, IS_GONE, VALID_TO and IS_CURRENT of versions and events.

    `timeline` has all entries of its keys, ordered by keys, order and kind.
    """
    names = [FILE, ROW, IS_GONE, VALID_TO, IS_CURRENT]
    kinds = timeline.column(KIND).to_numpy()
    # The last of equal entries counts.
    counts = ~_as_next(timeline, keys, order)
    counting = timeline.filter(pa.array(counts))
    follows = pa.array(_as_next(counting, keys, Order()))
    moments = counting.column(VALID_FROM).combine_chunks()
    nexts = pa.concat_arrays([moments[1:], pa.nulls(min(1, len(moments)), moments.type)])
    ends = pc.if_else(follows, nexts, pa.scalar(None, moments.type))
    currents = pc.invert(follows)
    before = counting.column(VALID_TO).combine_chunks(), counting.column(IS_CURRENT)
    same = pc.and_(
        pc.or_(
            pc.fill_null(pc.equal(ends, before[0]), False),
            pc.and_(pc.is_null(ends), pc.is_null(before[0])),
        ),
        pc.fill_null(pc.equal(currents, before[1].combine_chunks()), False),
    )
    kind = counting.column(KIND).combine_chunks()
    is_changed = pc.or_(
        pc.equal(kind, int(Kind.EVENT)),
        pc.and_(pc.equal(kind, int(Kind.VERSION)), pc.invert(same)),
    )
    nobody = pa.repeat(pa.scalar(False), counting.num_rows)
    changed = pa.Table.from_arrays(
        [counting.column(FILE), counting.column(ROW), nobody, ends, currents], names=names
    ).filter(is_changed)
    gone = timeline.filter(pa.array(~counts & (kinds == int(Kind.VERSION))))
    removed = pa.Table.from_arrays(
        [
            gone.column(FILE),
            gone.column(ROW),
            pa.repeat(pa.scalar(True), gone.num_rows),
            pa.nulls(gone.num_rows, moments.type),
            pa.repeat(pa.scalar(False), gone.num_rows),
        ],
        names=names,
    )
    return pa.concat_tables([changed, removed]).combine_chunks()


def _as_next(rows: pa.Table, keys: Sequence[str], order: Order) -> np.ndarray[Any, Any]:
    """Return of each row whether there is a next one with the same keys and order."""
    these, those = rows.slice(0, max(rows.num_rows - 1, 0)), rows.slice(1)
    same = Order((*keys, *order.columns)).same(these, those)
    found = np.zeros(rows.num_rows, dtype=bool)
    found[:-1] = same.to_numpy(zero_copy_only=False)
    return found


def patch_file(plan: MergePlan, file: TableFile, patch: pa.Table) -> list[FileWritten]:
    """Write a file anew, with other ends of some versions and without others."""
    patch = patch.sort_by(ROW)
    numbers = patch.column(ROW).to_numpy()
    folders = Folders(plan.write)
    try:
        with file.open(plan.write) as opened:
            first = 0
            for group in opened.groups:
                for batch in opened.batches(group):
                    low, high = np.searchsorted(numbers, [first, first + batch.num_rows])
                    part = patch.slice(low, high - low)
                    folders.add(_patched(batch, numbers[low:high] - first, part))
                    first += batch.num_rows
        return folders.finish()
    finally:
        folders.abandon()


def add_versions(plan: MergePlan, number: int, patch: pa.Table) -> list[FileWritten]:
    """Write the events of a staged file as versions; `patch` has the end of each."""
    patch = patch.sort_by(ROW)
    numbers = patch.column(ROW).to_numpy()
    folders = Folders(plan.write)
    try:
        file = plan.staged.files[number]
        for start, batch in plan.staged.batches(file):
            first = start - file.first
            low, high = np.searchsorted(numbers, [first, first + batch.num_rows])
            part, at = patch.slice(low, high - low), numbers[low:high] - first
            rows = batch.take(pa.array(at))
            arrays = [
                rows.column(each.name)
                if each.name in rows.schema.names
                else pa.nulls(rows.num_rows, each.type)
                for each in plan.write.schema
            ]
            full = pa.RecordBatch.from_arrays(arrays, schema=plan.write.schema)
            folders.add(_patched(full, np.arange(len(at)), part))
        return folders.finish()
    finally:
        folders.abandon()


def _patched(batch: pa.RecordBatch, at: np.ndarray[Any, Any], patch: pa.Table) -> pa.RecordBatch:
    """Return the rows, those at these places (which ascend) as the patch has them."""
    if len(at) == 0:
        return batch
    is_patched = np.zeros(batch.num_rows, dtype=bool)
    is_patched[at] = True
    for name in (VALID_TO, IS_CURRENT):
        index = batch.schema.get_field_index(name)
        wanted = batch.schema.field(index)
        values = patch.column(name).combine_chunks().cast(wanted.type)
        column = pc.replace_with_mask(batch.column(index), pa.array(is_patched), values)
        batch = batch.set_column(index, wanted, column)
    gone = patch.column(IS_GONE).to_numpy().astype(bool)
    stays = np.ones(batch.num_rows, dtype=bool)
    stays[at[gone]] = False
    return batch if stays.all() else batch.filter(pa.array(stays))
