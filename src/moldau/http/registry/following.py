"""Following the topic `_schemas`: every broker's copy of the registry's state.

A broker that holds a replica reads its own log, up to the high watermark. Only an unclean election
cuts off any of that, or a topic that is deleted and made again: then it is read anew. A broker that
holds none fetches from the leader, as a consumer does, and tells the epoch of the last record that
it has, so that the leader can say that its log has another there (KIP-320). What has been read
stays when the leader is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from moldau.broker.partitions.partition import Partition
from moldau.cluster.state.changes import AnyChange
from moldau.log.errors import LogError, OffsetOutOfRange
from moldau.peer.errors import PeerError
from moldau.peer.peers import Purpose
from moldau.records.batch import BatchError, batches
from moldau.records.record import records_of
from moldau.schemas.registry.records import decode
from moldau.schemas.registry.state import RegistryState, guid_of
from moldau.wire.errors import Error
from moldau.wire.fetch.request import FetchPartition, FetchRequest

if TYPE_CHECKING:
    from moldau.broker.server import Broker

logger = logging.getLogger("moldau.registry")

TOPIC = "_schemas"
_PURPOSE = Purpose("moldau-schemas")
_CHUNK = 64 << 10
_MOST_FETCHED = 1 << 20
_PAUSE_S = 0.2
_LONG_PAUSE_S = 1.0
_CURRENT_WITHIN_S = 10.0
_PATIENCE_S = 10.0
_KNOWN_WITHIN_S = 2.0


class SchemasFollower:
    """Reads `_schemas` and applies it to `state`; `applied` is the next offset. Event loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.state = RegistryState()
        self.applied = 0
        # The leader epoch of the last record that was read; -1 for none.
        self._epoch = -1
        self._topic_id: UUID | None = None
        self._waits_at: Partition | None = None
        # What that replica had lost when `state` was begun, or the replica taken up.
        self._losses = 0
        # Set when there may be more to read, and when there was; the latter is then replaced.
        self._more = asyncio.Event()
        self._read = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        broker.store.subscribe(self._noticed)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._wait_at(None)

    @property
    def partition(self) -> Partition | None:
        """The replica of this broker, if it holds one."""
        return self._broker.partitions.get((TOPIC, 0))

    @property
    def leader(self) -> int:
        """The broker that leads the topic; -1 if none does."""
        topic = self._broker.state.topics.get(TOPIC)
        return -1 if topic is None else topic.partitions[0].leader

    @property
    def is_leader(self) -> bool:
        partition = self.partition
        return partition is not None and partition.is_leader

    def notify(self) -> None:
        """The high watermark moved, or something else may have changed."""
        self._more.set()

    def has_read(self, partition: Partition) -> bool:
        """Return whether `state` is all that a replica holds, and nothing that it has lost."""
        return (
            partition is self._waits_at
            and partition.topic_id == self._topic_id
            and partition.losses == self._losses
            and partition.log.log_end == self.applied
        )

    async def until_applied(self, offset: int) -> None:
        """Wait until everything before this offset is in `state`."""
        while self.applied < offset:
            await self._read.wait()

    async def until_known(self, subject: str, name: int | str) -> bool:
        """Wait until a subject has the schema of an id or guid; False if it does not get it soon.

        Whoever leads knows all there is. Others may have been asked before they heard of it.
        """
        try:
            async with asyncio.timeout(0 if self.is_leader else _KNOWN_WITHIN_S):
                while not self._has(subject, name):
                    await self._read.wait()
        except TimeoutError:
            return False
        return True

    def _has(self, subject: str, name: int | str) -> bool:
        versions = self.state.versions(subject)
        if isinstance(name, int):
            return any(each.id == name for each in versions)
        return any(guid_of(each.schema) == name for each in versions)

    async def until_current(self) -> None:
        """Wait until all that this broker's own replica has is in `state`; TimeoutError if that
        takes too long."""
        partition = self.partition
        if partition is None or self._task is None:
            return
        end = min(partition.log.high_watermark, partition.log.log_end)
        if self.applied < end:
            async with asyncio.timeout(_CURRENT_WITHIN_S):
                await self.until_applied(end)

    def _noticed(self, changes: Sequence[AnyChange]) -> None:
        self._more.set()

    async def _run(self) -> None:
        while True:
            self._more.clear()
            try:
                await self._read_on()
            except (LogError, BatchError, PeerError, OSError) as problem:
                logger.warning("%s could not be read: %s", TOPIC, problem)
                await asyncio.sleep(_PAUSE_S)
            except Exception:
                # Everybody who writes to a checked topic waits for this task: it must not end.
                logger.exception("reading %s failed; trying again", TOPIC)
                await asyncio.sleep(_LONG_PAUSE_S)
            else:
                if self._waits_at is not None or self._topic_id is None:
                    await self._more.wait()

    async def _read_on(self) -> None:
        topic = self._broker.state.topics.get(TOPIC)
        if topic is None or topic.id != self._topic_id:
            self._begin_anew(None if topic is None else topic.id)
        partition = self.partition
        if topic is None or (partition is not None and partition.topic_id != topic.id):
            self._wait_at(None)
            return
        self._wait_at(partition)
        if partition is None:
            await self._fetch(topic.partitions[0].leader, topic.id)
        else:
            await self._read_log(partition)

    def _begin_anew(self, topic_id: UUID | None) -> None:
        self.state = RegistryState()
        self.applied, self._epoch = 0, -1
        self._topic_id = topic_id

    def _wait_at(self, partition: Partition | None) -> None:
        if partition is not self._waits_at:
            if self._waits_at is not None:
                self._waits_at.unwait(self)
            self._waits_at = partition
            self._losses = 0 if partition is None else partition.losses
        if partition is not None:
            partition.wait(self)

    async def _read_log(self, partition: Partition) -> None:
        log = partition.log
        while True:
            # A leader's log is what counts; a new replica may have to grow to what is known here.
            is_cut = partition.is_leader and self.applied > log.log_end
            if is_cut or partition.losses != self._losses:
                logger.warning("the log of %s was truncated: reading it from the beginning", TOPIC)
                self._begin_anew(self._topic_id)
                self._losses = partition.losses
            end = log.high_watermark
            if self.applied >= end:
                return
            try:
                found = log.read(self.applied, _CHUNK, end)
            except OffsetOutOfRange:
                # Somebody has deleted records: what is left says what there is.
                self._begin_anew(self._topic_id)
                self.applied = log.log_start
                continue
            if found is None:
                self._advance(end)
                continue
            data = await asyncio.to_thread(os.pread, found.file.fd, found.size, found.position)
            self._apply(data)

    async def _fetch(self, leader: int, topic_id: UUID) -> None:
        if leader < 0:
            await asyncio.sleep(_PAUSE_S)
            return
        lane = self._broker.peers.lane(leader, _PURPOSE, patience_s=lambda: _PATIENCE_S)
        connection = await lane.connection()
        wanted = FetchPartition(
            0,
            fetch_offset=self.applied,
            last_fetched_epoch=self._epoch,
            max_bytes=_MOST_FETCHED,
        )
        answer = await connection.fetch(FetchRequest([(topic_id, [wanted])]))
        for _, partitions in answer.topics:
            for fetched in partitions:
                if fetched.error == Error.OFFSET_OUT_OF_RANGE:
                    self._begin_anew(self._topic_id)
                    self.applied = max(0, fetched.log_start)
                elif fetched.diverging is not None:
                    logger.warning(
                        "the log of %s was truncated: reading it from the beginning", TOPIC
                    )
                    self._begin_anew(self._topic_id)
                elif fetched.error:
                    await asyncio.sleep(_PAUSE_S)
                elif fetched.records is not None:
                    self._apply(bytes(fetched.records))

    def _apply(self, data: bytes) -> None:
        for position, header in batches(data):
            if header.last_offset >= self.applied and not header.is_control:
                for record in records_of(data, position):
                    found = decode(record.key, record.value)
                    if found is not None and record.offset >= self.applied:
                        self.state.apply(found)
            self._epoch = header.leader_epoch
            self._advance(header.last_offset + 1)

    def _advance(self, offset: int) -> None:
        self.applied = max(self.applied, offset)
        read, self._read = self._read, asyncio.Event()
        read.set()
