"""Pipelines, as text, for tests."""

from __future__ import annotations

UPSERTED = """
[sinks.upserted]
from = "counts"
type = "delta"
path = "lake/counts"
keys = ["minute", "name"]
"""
