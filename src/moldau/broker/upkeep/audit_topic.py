"""The topic of the audit: what it counted in each interval, as JSON, one record for each kind."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any

from moldau.broker.node import Node
from moldau.broker.partitions.partitions import Partitions
from moldau.cluster.controller import Controller
from moldau.cluster.decisions.assignment import NewTopic
from moldau.cluster.errors import ClusterError
from moldau.log.errors import LogError
from moldau.peer.errors import PeerError, name_of
from moldau.peer.peers import Peers, Purpose
from moldau.records.record import Record, build_batch
from moldau.wire.apis import Api

logger = logging.getLogger("moldau.broker")

AUDIT = Purpose("moldau-audit")
_PATIENCE_S = 30.0
_CLOSE_WITHIN_S = 5.0
# The last version in which topics go by their names.
_PRODUCE_VERSION = 12
# Entries that wait to be written; more are only in the log.
_MOST_WAITING = 10_000


class AuditTopic:
    """Writes the audit's entries to a partition of the topic `name`. Event loop only.

    The topic is created when there is something to write. Entries that cannot be written now are
    kept, up to a bound, and written with the next ones.
    """

    def __init__(
        self, name: str, node: Node, partitions: Partitions, controller: Controller, peers: Peers
    ) -> None:
        self._name = name
        self._node = node
        self._partitions = partitions
        self._controller = controller
        self._peers = peers
        self._waiting: list[dict[str, Any]] = []
        self._idle = asyncio.Event()
        self._idle.set()

    def publish(self, entries: list[dict[str, Any]]) -> None:
        """Write these soon."""
        stamp = {"broker": self._node.id, "time_ms": self._node.now_ms()}
        self._waiting += [stamp | entry for entry in entries]
        if len(self._waiting) > _MOST_WAITING:
            lost = len(self._waiting) - _MOST_WAITING
            del self._waiting[:lost]
            logger.warning("%d entries of the audit are in this log only: too many waited", lost)
        if self._idle.is_set():
            self._idle.clear()
            self._node.spawn(self._write())

    async def close(self) -> None:
        """Write what still waits, if that takes no longer than a stopping broker can wait."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN_S):
                await self._idle.wait()
                if self._waiting:
                    await self._write()

    async def _write(self) -> None:
        entries, self._waiting = self._waiting, []
        try:
            await self._write_entries(entries)
        except (ClusterError, LogError, PeerError) as problem:
            self._waiting = entries + self._waiting
            logger.warning(
                "%d entries of the audit wait: topic %s cannot be written to: %s",
                len(self._waiting),
                self._name,
                problem,
            )
        finally:
            self._idle.set()

    async def _write_entries(self, entries: list[dict[str, Any]]) -> None:
        (outcome,) = await self._controller.ensure_topics([NewTopic(self._name)])
        if isinstance(outcome, ClusterError):
            raise outcome
        now_ms = self._node.now_ms()
        records = [
            Record(place, now_ms, None, json.dumps(entry).encode())
            for place, entry in enumerate(entries)
        ]
        batch = build_batch(records)
        partition = self._partitions.get((self._name, 0))
        if partition is not None and partition.is_leader:
            partition.append(memoryview(batch), now_ms)
            self._partitions.commit([])
            return
        await self._send(outcome.partitions[0].leader, bytes(batch))

    async def _send(self, leader: int, batch: bytes) -> None:
        lane = self._peers.lane(leader, AUDIT, patience_s=lambda: _PATIENCE_S)
        connection = await lane.connection()
        data = [{"name": self._name, "partition_data": [{"index": 0, "records": batch}]}]
        values = {"acks": 1, "timeout": int(_PATIENCE_S * 1000), "topic_data": data}
        answer = await connection.ask(Api.PRODUCE, values, _PRODUCE_VERSION)
        code = int(answer.responses[0].partition_responses[0].error_code)
        if code:
            raise PeerError(f"broker {leader} refused: {name_of(code)}")
