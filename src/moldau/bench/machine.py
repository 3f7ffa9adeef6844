"""The machine and the software that the figures belong to."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import time
from pathlib import Path

from moldau.bench.errors import Unavailable


def describe(folder: Path) -> dict[str, str]:
    """Processor, memory, kernel, versions, and how busy the machine was at the start."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    space = os.statvfs(folder)
    libraries = ("moldau", "uvloop", "crc32c", "confluent-kafka")
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "processor": f"{cpu}, {os.cpu_count()} cores",
        "memory": f"{memory:.0f} GiB",
        "disk free": f"{space.f_bavail * space.f_frsize / 1e9:.0f} GB",
        "kernel": f"{platform.system()} {platform.release()}, TCP {_congestion_control()}",
        "python": platform.python_version(),
        "libraries": ", ".join(f"{name} {_version(name)}" for name in libraries),
        "load before": f"{os.getloadavg()[0]:.2f}",
    }


def require_linux() -> None:
    if sys.platform != "linux":
        raise Unavailable(
            "the measurements read /proc and other processes' CPU clocks: they need Linux"
        )


def _congestion_control() -> str:
    path = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    return path.read_text().strip() if path.exists() else "?"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "?"
