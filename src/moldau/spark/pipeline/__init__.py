"""Pipelines: a TOML file from topics to results, on Spark."""

from __future__ import annotations

from moldau.spark.pipeline.errors import CheckpointInUse, PipelineError, Problem
from moldau.spark.pipeline.pipeline import Pipeline
from moldau.spark.pipeline.run.progress import SinkProgress

__all__ = ["CheckpointInUse", "Pipeline", "PipelineError", "Problem", "SinkProgress"]
