"""Flushes: what of a log is on disk, and how the rest gets there."""
