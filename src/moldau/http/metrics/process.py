"""The process: memory, CPU, files, and the garbage collector.

Under Prometheus' usual names, and again under those that boards for Kafka's Java process ask for.
"""

from __future__ import annotations

import gc
import os
import resource
import threading
import time
from pathlib import Path
from typing import Any

from moldau import __version__
from moldau.http.metrics.families import Families, labels

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Process:
    """This process. Event loop only; `start` and `stop` measure the garbage collector between."""

    def __init__(self, broker: int) -> None:
        self._broker = broker
        self._began = time.monotonic()
        self._collections = 0
        self._collecting_s = 0.0
        self._collecting_since = 0.0
        self._idle_at = (time.monotonic(), time.thread_time())
        self._idle_share = 1.0

    def start(self) -> None:
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._collecting_since = time.perf_counter()
        else:
            self._collections += 1
            self._collecting_s += time.perf_counter() - self._collecting_since

    def add_to(self, families: Families) -> None:
        """Add the families to those of a scrape."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        resident = _resident(usage)
        files = _open_files()
        written, read = _disk_bytes()
        idle = self._idle()
        families.gauge(
            "moldau_build_info",
            "1, with the version and the id of the broker.",
            1,
            labels(version=__version__, broker=self._broker),
        )
        families.gauge("moldau_uptime_seconds", "Time since HTTP started.", self._uptime_s)
        families.counter("process_cpu_seconds_total", "CPU time.", usage.ru_utime + usage.ru_stime)
        families.gauge("process_resident_memory_bytes", "Memory in use.", resident)
        families.gauge(
            "process_start_time_seconds", "When the process started.", time.time() - self._uptime_s
        )
        if files is not None:
            families.gauge("process_open_fds", "Open files and sockets.", files)
        families.gauge(
            "process_max_fds",
            "Limit on open files and sockets.",
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )
        if written is not None and read is not None:
            families.gauge(
                "kafka_server_kafkaserver_linux_disk_write_bytes", "Bytes written to disk.", written
            )
            families.gauge(
                "kafka_server_kafkaserver_linux_disk_read_bytes", "Bytes read from disk.", read
            )
        families.gauge(
            "jvm_memory_used_bytes", "Memory in use (not of a JVM).", resident, labels(area="heap")
        )
        families.gauge("jvm_threads_current", "Threads (not of a JVM).", threading.active_count())
        collector = labels(gc="python")
        times = families.family(
            "jvm_gc_collection_seconds", "summary", "Python's garbage collection (not of a JVM)."
        )
        times.lines.append(f"jvm_gc_collection_seconds_sum{collector} {self._collecting_s}\n")
        times.lines.append(f"jvm_gc_collection_seconds_count{collector} {self._collections}\n")
        for name in (
            "kafka_network_socketserver_networkprocessoravgidle_percent",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        ):
            families.gauge(name, "Share of time that the event loop is idle, 0 to 1.", idle)

    @property
    def _uptime_s(self) -> float:
        return time.monotonic() - self._began

    def _idle(self) -> float:
        """Return the share of time since the last scrape in which the loop's thread was idle."""
        clock, cpu = time.monotonic(), time.thread_time()
        passed = clock - self._idle_at[0]
        if passed > 0.5:
            self._idle_share = min(1.0, max(0.0, 1 - (cpu - self._idle_at[1]) / passed))
            self._idle_at = (clock, cpu)
        return self._idle_share


def _resident(usage: resource.struct_rusage) -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except OSError:
        # Elsewhere than on Linux: the most that it ever was.
        return usage.ru_maxrss


def _open_files() -> int | None:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder))
        except OSError:
            continue
    return None


def _disk_bytes() -> tuple[int | None, int | None]:
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return None, None
    found = dict(line.split(": ") for line in lines)
    return int(found["write_bytes"]), int(found["read_bytes"])
