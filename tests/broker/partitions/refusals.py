"""Numbered batches and refusals, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moldau.broker.server import Broker as Server
from moldau.testing import Broker
from moldau.wire.errors import Error
from tests.broker.wire_client import inside, make_batch

OUT_OF_ORDER = Error.OUT_OF_ORDER_SEQUENCE_NUMBER


TOO_FEW = Error.NOT_ENOUGH_REPLICAS


DAY_MS = 24 * 3_600_000


def numbered(
    sequence: int, *values: bytes, epoch: int = 0, producer: int = 77, **more: Any
) -> bytearray:
    return make_batch(
        *(values or (b"%d" % sequence,)),
        **{"key": b"k"} | more,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def run(broker: Broker, work: Callable[[Server], None]) -> None:
    inside(broker, work)


def assert_empty(server: Server) -> None:
    assert len(server.partitions.refused_writes) == 0
    assert not server.partitions.refused_writes.topics
