"""Measurements for who works on Moldau: what a user's own machine says little about."""

from __future__ import annotations

from bench.measure.access import measure_access
from bench.measure.cold_reads import measure_cold_reads
from bench.measure.compaction import measure_compaction
from bench.measure.console import measure_console
from bench.measure.decode import measure_decode
from bench.measure.door import measure_door
from bench.measure.log_size import measure_log_size
from bench.measure.merges import measure_merges
from bench.measure.metrics import measure_metrics
from bench.measure.registry import measure_registry
from moldau.bench.measure import MEASUREMENTS as OF_USERS
from moldau.bench.measure import Measurement

MEASUREMENTS: dict[str, Measurement] = {
    "cold": measure_cold_reads,
    "door": measure_door,
    "log-size": measure_log_size,
    "compaction": measure_compaction,
    "decode": measure_decode,
    "merges": measure_merges,
    "metrics": measure_metrics,
    "access": measure_access,
    "registry": measure_registry,
    "console": measure_console,
}
ALL = OF_USERS | MEASUREMENTS
