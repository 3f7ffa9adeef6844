"""Spark looks for modules of this kind of name and registers what they call DefaultSource."""

from moldau.spark.source.source import MoldauSource as DefaultSource

__all__ = ["DefaultSource"]
