"""Tables of a lake as the sinks of a pipeline: Delta by path, Iceberg by name."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from moldau.spark.pipeline.file.file import PipelineFile
from moldau.spark.pipeline.file.intervals import seconds_of
from moldau.spark.pipeline.file.settings import (
    DeltaSinkSettings,
    IcebergSinkSettings,
    LakeSinkSettings,
    ParquetSink,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from moldau.spark.lake import DeltaSink, IcebergSink, Offsets, Written


class LakeSink(Protocol):
    """What a pipeline asks of either kind."""

    def require_fit(self, schema: StructType) -> None: ...

    def write(self, batch: DataFrame, batch_id: int, offsets: Offsets | None = None) -> Written: ...


def lake_sink(file: PipelineFile, sink: LakeSinkSettings, target: str, app_id: str) -> LakeSink:
    """Return the sink to a table; `target` is its path, or its name in a catalog."""
    if isinstance(sink, IcebergSinkSettings):
        return _iceberg(file, sink, target, app_id)
    assert isinstance(sink, DeltaSinkSettings)
    return _delta(sink, target, app_id)


def committed(
    file: PipelineFile, sink: LakeSinkSettings, target: str, app_id: str
) -> tuple[int, Offsets] | None:
    """Return the last batch that the table has, and its offsets; None if it has none."""
    if isinstance(sink, IcebergSinkSettings):
        from moldau.spark.lake import IcebergSink

        # How rows are merged may follow from their columns, and is of no matter here.
        table = IcebergSink(
            target, app_id=app_id, warehouse=_warehouse(file, sink), catalog=sink.catalog
        )
        return table.committed_offsets()
    assert isinstance(sink, DeltaSinkSettings)
    from moldau.spark.lake import committed_offsets

    return committed_offsets(target, app_id, sink.storage_options)


def is_there(file: PipelineFile, sink: LakeSinkSettings, target: str) -> bool:
    """Return whether the table exists."""
    return schema_in_table(file, sink, target) is not None


def schema_in_table(file: PipelineFile, sink: LakeSinkSettings, target: str) -> pa.Schema | None:
    """Return the columns of the table; None where there is none."""
    if isinstance(sink, IcebergSinkSettings):
        from moldau.spark.lake.iceberg.catalog import CatalogTable
        from moldau.spark.lake.iceberg.schema import arrow_of

        found = CatalogTable(target, _warehouse(file, sink), sink.catalog).open()
        return None if found is None else arrow_of(found.schema())
    assert isinstance(sink, DeltaSinkSettings)
    from moldau.spark.lake.evolution import schema_of
    from moldau.spark.lake.journal import open_table
    from moldau.spark.lake.location import Location

    table = open_table(Location.parse(target, sink.storage_options))
    return None if table is None else schema_of(table)


def partition_columns(sink: LakeSinkSettings | ParquetSink) -> list[str]:
    """Return the columns that a table is partitioned by; LakeError if that is unclear."""
    if not isinstance(sink, IcebergSinkSettings):
        return sink.partition_by
    from moldau.spark.lake.iceberg.transforms import parse_transforms

    return [each.column for each in parse_transforms(sink.partition_by)]


def _delta(sink: DeltaSinkSettings, target: str, app_id: str) -> DeltaSink:
    from moldau.spark.lake import DeltaSink

    return DeltaSink(
        target,
        app_id=app_id,
        mode="upsert" if sink.keys else "complete" if sink.mode == "complete" else "append",
        keys=sink.keys,
        order_by=sink.orders,
        delete_where=sink.delete_where,
        delete_retention=timedelta(seconds=seconds_of(sink.delete_retention)),
        merge_where=sink.merge_where,
        scd=sink.scd,
        valid_from=sink.valid_from,
        partition_by=sink.partition_by,
        optimize_every=sink.optimize_every,
        storage_options=sink.storage_options,
        table=sink.table,
        catalog=sink.catalog,
    )


def _iceberg(
    file: PipelineFile, sink: IcebergSinkSettings, target: str, app_id: str
) -> IcebergSink:
    from moldau.spark.lake import IcebergSink

    return IcebergSink(
        target,
        app_id=app_id,
        warehouse=_warehouse(file, sink),
        catalog=sink.catalog,
        mode="upsert" if sink.keys else "complete" if sink.mode == "complete" else "append",
        keys=sink.keys,
        order_by=sink.orders,
        delete_where=sink.delete_where,
        delete_retention=timedelta(seconds=seconds_of(sink.delete_retention)),
        merge_where=sink.merge_where,
        scd=sink.scd,
        valid_from=sink.valid_from,
        partition_by=sink.partition_by,
        optimize_every=sink.optimize_every,
    )


def _warehouse(file: PipelineFile, sink: IcebergSinkSettings) -> str:
    """Return a path as the file means it; what another catalog calls a warehouse stays."""
    from moldau.spark.lake.iceberg.catalog import is_rest

    is_path = sink.catalog.get("type", "sql") == "sql" and not is_rest(sink.catalog)
    if not sink.warehouse or not is_path:
        return sink.warehouse
    return file.resolve(sink.warehouse)
