"""Runnables: what a supervisor asks of a pipeline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from moldau.spark.pipeline.file.file import PipelineFile
from moldau.spark.pipeline.run.progress import SinkProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Runnable(Protocol):
    """A pipeline: its file, and one run of it."""

    file: PipelineFile

    def run(
        self,
        *,
        once: bool = False,
        emit_open: bool = False,
        spark: SparkSession | None = None,
        stop: threading.Event | None = None,
        on_progress: Callable[[SinkProgress], None] | None = None,
        on_start: Callable[[], None] | None = None,
    ) -> dict[str, SinkProgress]: ...
