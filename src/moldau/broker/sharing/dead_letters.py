"""Dead letters (KIP-1191): records that a share group gave up, written to a topic with the reason.

A dead letter is the record as it was, with these headers besides, all of them text:

    __dlq.errors.topic, .partition, .offset   where it was
    __dlq.errors.group                        who gave it up
    __dlq.errors.delivery.count               how often it was delivered
    __dlq.errors.message                      why

It lies in the partition with the number of the one that it came from, as far as there are so many.
It is on all in-sync replicas before the record counts as finished. If the broker dies in between,
the record is delivered again, and may die again: then there are two letters of it, never none.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from moldau.broker.coordination.host import Host
from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.partitions import Partitions
from moldau.broker.partitions.refused_writes import RefusedWrites
from moldau.broker.sharing.delivery import Dead
from moldau.broker.sharing.reading import FoundBatch, batches_of
from moldau.cluster.decisions.assignment import NewTopic
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.internal_topics import INTERNAL_TOPICS
from moldau.log.errors import LogError, StorageError
from moldau.log.files.open_files import Slice
from moldau.peer.errors import PeerError, name_of
from moldau.peer.peers import Peers, Purpose
from moldau.records.batch import BatchError
from moldau.records.record import Record, build_batch, records_of
from moldau.wire.apis import Api
from moldau.wire.primitives import MalformedRequest

logger = logging.getLogger("moldau.share")

BURYING = Purpose("moldau-dead-letters")
PREFIX = "__dlq.errors."
REJECTED = "Offset rejected by client."
OUT_OF_TRIES = "Offset delivery count exceeded the threshold."
_PATIENCE_S = 10.0
# The last version in which topics go by their names.
_PRODUCE_VERSION = 12
_READ_BYTES = 1 << 20
# Batches are skipped up to here; what is further off is looked up anew.
_FAR = 10_000


class Place(NamedTuple):
    """A batch within a slice of a segment file."""

    found: Slice
    begin: int
    end: int


class Unburied(Exception):
    """Dead letters that could not be written."""


class DeadLetters:
    """Writes dead letters, wherever their topic is led. Event loop only."""

    def __init__(self, host: Host, me: int, partitions: Partitions, peers: Peers) -> None:
        self._host = host
        self._me = me
        self._partitions = partitions
        self._peers = peers
        # Records that were written as dead letters, and those that could not be.
        self.buried = self.failed = 0
        # Why groups wait with their letters for topics, as was said in the log.
        self._told: dict[tuple[str, str], str] = {}

    async def bury(
        self, partition: Partition, group: str, topic: str, dead: Sequence[Dead]
    ) -> bool:
        """Write the records to the topic; return whether all in-sync replicas have them."""
        try:
            index = await self._place(topic, partition.index)
            async for batch, wanted in _batches(partition, dead):
                # Decompressing and decoding may take longer than the loop may be held.
                records = await asyncio.to_thread(_chosen, batch, wanted)
                letters = [self._letter(partition, group, *each) for each in records]
                for chunk in _chunks(letters):
                    await self._write(topic, index, chunk)
                self.buried += len(letters)
        except (Unburied, ClusterError, LogError, BatchError, PeerError, TimeoutError) as problem:
            self._complain(group, topic, str(problem))
            return False
        except Exception:
            # They have to be tried again: until then nobody gets them, and nobody else can.
            self.failed += 1
            logger.exception("writing dead letters of group %r to topic %s failed", group, topic)
            return False
        self._told.pop((group, topic), None)
        return True

    def _complain(self, group: str, topic: str, problem: str) -> None:
        """Say why letters wait, once for as long as it stays the same: they are tried often."""
        self.failed += 1
        if self._told.get((group, topic)) != problem:
            self._told[group, topic] = problem
            logger.warning(
                "dead letters of group %r are waiting, because topic %s does not accept them: %s",
                group, topic, problem,
            )  # fmt: skip

    async def _place(self, topic: str, index: int) -> int:
        """Return the partition for the letters of another; create the topic if there is none."""
        settings = self._host.settings
        if not topic.startswith(settings.errors_deadletterqueue_topic_name_prefix):
            prefix = settings.errors_deadletterqueue_topic_name_prefix
            raise Unburied(f"its name does not begin with {prefix!r}")
        if topic in INTERNAL_TOPICS:
            raise Unburied("it is an internal topic")
        if topic not in self._host.state.topics:
            if not settings.errors_deadletterqueue_auto_create_topics_enable:
                raise Unburied("the topic does not exist")
            refusal = await self._host.ensure_topic(NewTopic(topic))
            if refusal is not None:
                raise refusal
        return index % len(self._host.state.topics[topic].partitions)

    def _letter(self, partition: Partition, group: str, dead: Dead, record: Record) -> Record:
        said = {
            "topic": partition.topic,
            "partition": partition.index,
            "offset": record.offset,
            "group": group,
            "delivery.count": dead.deliveries,
            "message": REJECTED if dead.is_rejected else OUT_OF_TRIES,
        }
        # Those of an earlier death would tell another story.
        headers = [each for each in record.headers if not each[0].startswith(PREFIX)]
        headers += [(PREFIX + name, str(value).encode()) for name, value in said.items()]
        return Record(0, self._host.now_ms(), record.key, record.value, headers)

    async def _write(self, topic: str, index: int, records: Sequence[Record]) -> None:
        batch = build_batch([each._replace(offset=n) for n, each in enumerate(records)])
        state = self._host.state.partition(topic, index)
        if state is None:
            raise Unburied("its topic was deleted")
        partition = self._partitions.get((topic, index))
        if partition is not None and partition.is_leader:
            await self._append(partition, batch)
        else:
            await self._send(state.leader, topic, index, bytes(batch))

    async def _append(self, partition: Partition, batch: bytearray) -> None:
        if len(partition.isr) < partition.min_isr:
            raise Unburied("it has too few in-sync replicas")
        partition.append(memoryview(batch), self._host.now_ms())
        replicated = _Replicated(partition, self._host.loop)
        self._partitions.commit([replicated])
        async with asyncio.timeout(_PATIENCE_S):
            await replicated.wait()

    async def _send(self, leader: int, topic: str, index: int, batch: bytes) -> None:
        if leader < 0:
            raise Unburied("it has no leader")
        lane = self._peers.lane(leader, BURYING, patience_s=lambda: _PATIENCE_S)
        connection = await lane.connection()
        data = [{"name": topic, "partition_data": [{"index": index, "records": batch}]}]
        values = {"acks": -1, "timeout": int(_PATIENCE_S * 1000), "topic_data": data}
        try:
            answer = await connection.ask(Api.PRODUCE, values, _PRODUCE_VERSION)
        except MalformedRequest as problem:
            raise Unburied(str(problem)) from problem
        code = int(answer.responses[0].partition_responses[0].error_code)
        if code:
            raise Unburied(f"broker {leader} refused them: {name_of(code)}")


class _Replicated:
    """Waits until every in-sync replica has what was just staged; a `StagedWrite`."""

    def __init__(self, partition: Partition, loop: asyncio.AbstractEventLoop) -> None:
        self._partition = partition
        self._epoch = partition.leader_epoch
        self._needed = partition.log.log_end
        self._done: asyncio.Future[None] = loop.create_future()

    def settle(
        self,
        loop: asyncio.AbstractEventLoop,
        failed: dict[Partition, StorageError],
        refused: RefusedWrites,
    ) -> None:
        """Wait, after the commit, for the replicas; or give up if the disk refused."""
        if self._partition in failed:
            self._done.set_exception(failed[self._partition])
        else:
            self._partition.wait(self)
            self._partition.ask_flush()
            self.notify()

    async def wait(self) -> None:
        try:
            await self._done
        finally:
            self._partition.unwait(self)

    def notify(self) -> None:
        partition = self._partition
        if self._done.done():
            return
        if not partition.is_leader or partition.leader_epoch != self._epoch:
            self._done.set_exception(Unburied("its leader has changed"))
        elif partition.log.high_watermark >= self._needed:
            self._done.set_result(None)


async def _batches(
    partition: Partition, dead: Sequence[Dead]
) -> AsyncIterator[tuple[Place, list[Dead]]]:
    """Go through the batches with any of the dead, each once, as far as they are still there."""
    log = partition.log
    left = deque(sorted(dead))
    while left:
        offset = max(left[0].first, log.log_start)
        found = log.read(offset, _READ_BYTES, log.high_watermark)
        if found is None:
            return
        begin, last = 0, -1
        # What is given up may be old, so that the disk has to be waited for.
        for header, end in await asyncio.to_thread(_headers, found):
            last = header.last_offset
            wanted = _beginning_by(left, last)
            if wanted and not header.is_control and wanted[-1].last >= header.base_offset:
                yield Place(found, begin, end), wanted
            begin = end
            while left and left[0].last <= last:
                left.popleft()
            if not left or left[0].first > last + _FAR:
                break
        else:
            if last < offset:
                raise Unburied(f"offset {offset} of {partition.topic} cannot be read")
            if left and left[0].first <= last:
                left[0] = left[0]._replace(first=last + 1)


def _headers(found: Slice) -> list[FoundBatch]:
    """Return the batches of a slice. Any thread."""
    return list(batches_of(found))


def _beginning_by(dead: Iterable[Dead], last: int) -> list[Dead]:
    return list(takewhile(lambda each: each.first <= last, dead))


def _chosen(place: Place, wanted: Sequence[Dead]) -> list[tuple[Dead, Record]]:
    """Return the records of a batch that are dead. Any thread."""
    found, begin, end = place
    data = os.pread(found.file.fd, end - begin, found.position + begin)
    chosen: list[tuple[Dead, Record]] = []
    at = 0
    for record in records_of(data):
        while at < len(wanted) and wanted[at].last < record.offset:
            at += 1
        if at < len(wanted) and wanted[at].first <= record.offset:
            chosen.append((wanted[at], record))
    return chosen


def _chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Divide records into batches that any topic takes."""
    chunk: list[Record] = []
    size = 0
    for record in records:
        more = len(record.key or b"") + len(record.value or b"") + 200
        if chunk and size + more > _READ_BYTES // 2:
            yield chunk
            chunk, size = [], 0
        chunk.append(record)
        size += more
    if chunk:
        yield chunk
