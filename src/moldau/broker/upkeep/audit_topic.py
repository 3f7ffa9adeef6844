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
from moldau.log.config import LogConfig
from moldau.log.errors import LogError
from moldau.peer.errors import PeerError, name_of
from moldau.peer.peers import Peers, Purpose
from moldau.records.batch import BatchError
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
# The size of a batch, if the topic takes so much, and what it and each of its records have besides.
_LARGEST_BATCH = 256 << 10
_OF_BATCH, _OF_RECORD = 100, 40


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
            logger.warning(
                "dropped %d entries for the audit topic, because too many were waiting: they are "
                "only in this log",
                lost,
            )
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
            while entries:
                written = await self._write_some(entries)
                del entries[:written]
                # Others are served between two batches.
                await asyncio.sleep(0)
        except (ClusterError, LogError, BatchError, PeerError) as problem:
            self._waiting = entries + self._waiting
            logger.warning(
                "%d entries of the audit are waiting, because topic %s cannot be written: %s",
                len(self._waiting),
                self._name,
                problem,
            )
        finally:
            self._idle.set()

    async def _write_some(self, entries: list[dict[str, Any]]) -> int:
        """Write the first entries, as many as have room in a batch; return how many are done."""
        (outcome,) = await self._controller.ensure_topics([NewTopic(self._name)])
        if isinstance(outcome, ClusterError):
            raise outcome
        now_ms = self._node.now_ms()
        config = LogConfig.parse(outcome.configs, self._node.settings.topic_defaults)
        room = min(_LARGEST_BATCH, config.max_message_bytes) - _OF_BATCH
        records: list[Record] = []
        for place, entry in enumerate(entries):
            text = json.dumps(entry).encode()
            room -= len(text) + _OF_RECORD
            if room < 0:
                break
            records.append(Record(place, now_ms, None, text))
        if not records:
            logger.warning(
                "dropped 1 entry for the audit topic %s, because it is too large: it is only in "
                "this log",
                self._name,
            )
            return 1
        batch = build_batch(records)
        partition = self._partitions.get((self._name, 0))
        if partition is not None and partition.is_leader:
            partition.append(memoryview(batch), now_ms)
            self._partitions.commit([])
        else:
            await self._send(outcome.partitions[0].leader, bytes(batch))
        return len(records)

    async def _send(self, leader: int, batch: bytes) -> None:
        lane = self._peers.lane(leader, AUDIT, patience_s=lambda: _PATIENCE_S)
        connection = await lane.connection()
        data = [{"name": self._name, "partition_data": [{"index": 0, "records": batch}]}]
        values = {"acks": 1, "timeout": int(_PATIENCE_S * 1000), "topic_data": data}
        answer = await connection.ask(Api.PRODUCE, values, _PRODUCE_VERSION)
        code = int(answer.responses[0].partition_responses[0].error_code)
        if code:
            raise PeerError(f"broker {leader} refused: {name_of(code)}")
