"""A merge as its settings want it: the newest row of each key, or all versions of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from moldau.spark.lake.files import FileWritten
from moldau.spark.lake.merge.condition import held_back
from moldau.spark.lake.merge.deleted_keys import DeletedKeys
from moldau.spark.lake.merge.older import Order
from moldau.spark.lake.merge.settings import MergeSettings
from moldau.spark.lake.merge.staged import Staged
from moldau.spark.lake.merge.upserting import Upserting
from moldau.spark.lake.merge.versioning import Versioning, rearrange_in_spark
from moldau.spark.lake.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Merge = Upserting | Versioning


def merge_in_spark(
    spark: SparkSession,
    settings: MergeSettings,
    staged: Staged,
    written: Sequence[FileWritten],
    order: Order,
    deleted: DeletedKeys,
) -> Merge:
    """Return the merge of the staged rows, which are in `written`; Spark runs its tasks."""
    run, slots = partial(run_tasks, spark), spark.sparkContext.defaultParallelism
    if settings.scd == 2:
        rearrange = partial(rearrange_in_spark, spark)
        return Versioning(run, rearrange, slots, staged, written, settings.keys, order, deleted)
    condition = partial(held_back, spark, settings.merge_where) if settings.merge_where else None
    return Upserting(run, slots, staged, written, settings.keys, order, deleted, condition)
