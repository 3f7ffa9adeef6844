"""Pipelines as others see them: the status that each writes to a topic. Needs no Spark."""
