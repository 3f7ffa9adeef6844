"""Two set-ups of Apache Kafka: as it comes, and tuned for the machine that it runs on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Setup:
    """A named choice of JVM options and broker settings."""

    name: str
    jvm: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)


# What Kafka's own start script passes to Java.
_SCRIPT_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# What Kafka's own server.properties sets beyond addresses and folders.
_PROPERTIES = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}

STOCK = Setup("stock", ("-Xms1g", "-Xmx1g", *_SCRIPT_OPTIONS), _PROPERTIES)


def tuned() -> Setup:
    """As an operator who knows this machine would have it.

    A thread per core for the network and two for requests instead of 3 and 8, which on few cores
    only take turns; the collector with the least work in total, on a heap that it seldom has to
    look at; buffers large enough for a batch of a megabyte; no first-join delay for groups.
    """
    cores = os.cpu_count() or 1
    jvm = (
        "-Xms2g",
        "-Xmx2g",
        "-Xmn1g",
        "-server",
        "-XX:+UseParallelGC",
        "-XX:+PerfDisableSharedMem",
    )
    return Setup(
        "tuned",
        (*jvm, "-Djava.awt.headless=true"),
        {
            **_PROPERTIES,
            "num.network.threads": str(cores),
            "num.io.threads": str(2 * cores),
            "socket.send.buffer.bytes": "1048576",
            "socket.receive.buffer.bytes": "1048576",
            "num.recovery.threads.per.data.dir": str(cores),
            "group.initial.rebalance.delay.ms": "0",
        },
    )
