"""Lake tables: micro-batches of a stream into a Delta or Iceberg table, each exactly once.

    from moldau.spark.lake import DeltaSink

    sink = DeltaSink("lake/orders", app_id="orders")
    stream.writeStream.foreachBatch(sink.write).option("checkpointLocation", ...).start()

Tasks write Parquet; the driver makes it part of the table in one transaction that also says which
batch it was and which records of which topics it holds. No jar is needed: the log of a Delta table
is written by the package deltalake, and the metadata of an Iceberg table by pyiceberg.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from moldau.spark.runtime.session import SparkMissing

if TYPE_CHECKING:
    from moldau.spark.lake.errors import LakeError, OffsetConflict, SchemaConflict
    from moldau.spark.lake.iceberg.sink import IcebergSink
    from moldau.spark.lake.journal import committed_offsets
    from moldau.spark.lake.offsets import Offsets, offsets_of_batch
    from moldau.spark.lake.order import record_order
    from moldau.spark.lake.sink import DeltaSink, Written

__all__ = [
    "DeltaSink",
    "IcebergSink",
    "LakeError",
    "OffsetConflict",
    "Offsets",
    "SchemaConflict",
    "Written",
    "committed_offsets",
    "offsets_of_batch",
    "record_order",
]
_HOMES = {
    "DeltaSink": "sink",
    "IcebergSink": "iceberg.sink",
    "LakeError": "errors",
    "OffsetConflict": "errors",
    "Offsets": "offsets",
    "SchemaConflict": "errors",
    "Written": "sink",
    "committed_offsets": "journal",
    "offsets_of_batch": "offsets",
    "record_order": "order",
}


def __getattr__(name: str) -> Any:
    # Tasks import a module of this package too, and have no use for deltalake.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if find_spec("deltalake") is None:
        raise SparkMissing(
            "deltalake is not installed; lake tables need an extra: pip install 'moldau[spark]'"
        )
    if name == "IcebergSink" and find_spec("pyiceberg") is None:
        raise SparkMissing(
            "pyiceberg is not installed; Iceberg tables need an extra: "
            "pip install 'moldau[iceberg]'"
        )
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
