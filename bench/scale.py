"""Scales: how much the measurements of this folder measure, for each scale of `moldau bench`."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.bench.scale import FULL, GB, QUICK, TINY, Scale


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts per sample, beside those of a `Scale`."""

    cold_bytes: int
    hot_s: float
    door_s: float
    door_senders: int
    door_request_bytes: int
    door_readers: int
    door_batch_bytes: int
    door_records: int
    door_topics: int
    door_partitions: int
    log_bytes: tuple[int, int]
    log_slice_bytes: int
    compaction_keys: int
    compaction_beside_keys: int
    decode_rows: int
    memory_rows: tuple[int, int]
    merge_rows: tuple[int, int]
    merges: int
    registry_lookups: int
    registry_batches: int
    console_records: int
    console_topics: int
    console_samples: int
    console_messages: int


_AMOUNTS = {
    FULL.name: Amounts(
        cold_bytes=3 * GB,
        hot_s=5.0,
        door_s=10.0,
        door_senders=40,
        door_request_bytes=100_000_000,
        door_readers=60,
        door_batch_bytes=60_000_000,
        door_records=1_000_000,
        door_topics=1000,
        door_partitions=100_000,
        log_bytes=(GB, 20 * GB),
        log_slice_bytes=GB,
        compaction_keys=10_000_000,
        compaction_beside_keys=4_000_000,
        decode_rows=20_000_000,
        memory_rows=(1_000_000, 10_000_000),
        merge_rows=(1_000_000, 10_000_000),
        merges=3,
        registry_lookups=20_000,
        registry_batches=2_000,
        console_records=10_000_000,
        console_topics=5_000,
        console_samples=6,
        console_messages=100_000,
    ),
    QUICK.name: Amounts(
        cold_bytes=GB // 2,
        hot_s=1.5,
        door_s=4.0,
        door_senders=40,
        door_request_bytes=100_000_000,
        door_readers=60,
        door_batch_bytes=60_000_000,
        door_records=200_000,
        door_topics=1000,
        door_partitions=10_000,
        log_bytes=(GB // 2, 3 * GB),
        log_slice_bytes=GB // 2,
        compaction_keys=500_000,
        compaction_beside_keys=600_000,
        decode_rows=5_000_000,
        memory_rows=(250_000, 2_500_000),
        merge_rows=(200_000, 2_000_000),
        merges=2,
        registry_lookups=6_000,
        registry_batches=400,
        console_records=2_000_000,
        console_topics=2_000,
        console_samples=3,
        console_messages=100_000,
    ),
    TINY.name: Amounts(
        cold_bytes=4_000_000,
        hot_s=0.01,
        door_s=0.3,
        door_senders=4,
        door_request_bytes=3_000_000,
        door_readers=4,
        door_batch_bytes=3_000_000,
        door_records=3000,
        door_topics=20,
        door_partitions=100,
        log_bytes=(2_000_000, 6_000_000),
        log_slice_bytes=1_000_000,
        compaction_keys=3000,
        compaction_beside_keys=3000,
        decode_rows=20_000,
        memory_rows=(5000, 20_000),
        merge_rows=(2000, 20_000),
        merges=1,
        registry_lookups=320,
        registry_batches=8,
        console_records=20_000,
        console_topics=20,
        console_samples=1,
        console_messages=2_000,
    ),
}


def amounts_of(scale: Scale) -> Amounts:
    return _AMOUNTS[scale.name]
