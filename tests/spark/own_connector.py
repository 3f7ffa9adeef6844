"""Spark's own Kafka connector, for processes that tests start."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

from bench.kafka.jars import connector_jars, kafka_jars
from moldau.bench.errors import Unavailable

# The exit status of a process that cannot have it.
UNAVAILABLE = 3


def own_connector(of_kafka: str = "") -> tuple[str, list[Path]]:
    """Return what it is in words, and its jars; end this process with a reason if there is none.

    `of_kafka` is a pattern of jars that Kafka's broker has and the connector does not bring.
    """
    try:
        name, jars = connector_jars(version("pyspark"))
        return name, [*jars, *(kafka_jars().glob(of_kafka) if of_kafka else ())]
    except Unavailable as reason:
        sys.stdout.write(f"Spark's own connector is not available: {reason}\n")
        sys.exit(UNAVAILABLE)
