"""What needs the extra is left out where it is not installed; tests/spark/test_extra.py says so."""

from __future__ import annotations

from importlib.util import find_spec

MISSING = [name for name in ("deltalake", "pyspark", "pyarrow") if find_spec(name) is None]

collect_ignore_glob = ["test_*.py"] if MISSING else []
