"""A controller over a store in memory, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from moldau.cluster.controller import Controller
from moldau.cluster.decisions.assignment import NewTopic
from moldau.cluster.embedded import EmbeddedStore
from moldau.cluster.peers import peers_in
from moldau.cluster.state.changes import BrokerJoined
from moldau.cluster.state.topics import BrokerInfo, Topic
from moldau.log.config import LogConfig


@dataclass
class Defaults:
    num_partitions: int = 1
    default_replication_factor: int = 1
    topic_defaults: LogConfig = field(default_factory=LogConfig)
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 30
    max_broker_partitions: int = 100_000


@asynccontextmanager
async def controlled(
    folder: Path, brokers: int = 1, defaults: Defaults | None = None
) -> AsyncIterator[tuple[Controller, EmbeddedStore]]:
    store = EmbeddedStore(folder, BrokerInfo(0, "localhost", 9092))
    await store.open()
    for id in range(1, brokers):
        store.state.apply(BrokerJoined(BrokerInfo(id, "localhost", 9092 + id)))
    try:
        yield Controller(store, defaults or Defaults(), 0, peers_in(store, 0)), store
    finally:
        await store.close()


async def create(controller: Controller, request: NewTopic) -> Topic:
    [result] = await controller.create_topics([request])
    assert isinstance(result, Topic), result
    return result
