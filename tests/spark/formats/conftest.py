"""Formats need no Spark to run, only its types."""

from __future__ import annotations

from tests.spark.conftest import MISSING

collect_ignore_glob = ["test_*.py"] if MISSING else []
