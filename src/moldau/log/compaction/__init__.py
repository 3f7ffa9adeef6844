"""Compaction by key: which logs want it, and the worker process that does it."""
