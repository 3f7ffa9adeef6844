"""Compaction by key: the logs that need it, the worker that does it, and the swap of its files.

When it runs, and how many at a time, is the broker's business.
"""
