"""The transaction coordinator of a broker: brings requests, time and the log to its transactions.

A transactional id belongs to the partition of `__transaction_state` that it hashes to, and whoever
leads that partition coordinates it. What `machine` decides is written there first and counts once
it is below the high watermark. Whoever leads next reads it back, waits until that much is below it,
and carries on with what was decided: markers that are not known to be written are written again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import NamedTuple, Protocol

from moldau.broker.coordination.host import Host
from moldau.broker.coordination.journal import Journal, settler
from moldau.broker.coordination.placement import Size
from moldau.broker.coordination.shards import Shards
from moldau.broker.coordination.transactions import machine
from moldau.broker.coordination.transactions.expiry import abort_timed_out, forget_expired
from moldau.broker.coordination.transactions.held import HeldTransaction, HeldTransactions
from moldau.broker.coordination.transactions.machine import (
    Decision,
    End,
    Init,
    NeedsProducerId,
    Refused,
    Write,
)
from moldau.broker.coordination.transactions.markers import Marker, Markers
from moldau.broker.coordination.transactions.outbox import WITHIN_S
from moldau.broker.coordination.transactions.transaction import NOBODY, Identity, Transaction
from moldau.broker.partitions.partition import Partition
from moldau.cluster.state.internal_topics import TRANSACTION_STATE
from moldau.cluster.store import StoreError
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error

logger = logging.getLogger("moldau.transactions")

# How long a producer that adds partitions waits here for the end of its last transaction, before it
# is told to come again: most ends take less time than the client's pause would.
_PATIENCE_S = 0.1
# Before a write that a lack of replicas refused is tried again.
_PAUSE_S = 0.1


class ProducerIds(Protocol):
    """Hands out producer ids that nobody has had."""

    async def next(self) -> int: ...


class Outcome(NamedTuple):
    """What a producer is told: an error, or who it is now, and whose transaction it took over."""

    error: Error
    producer: Identity = NOBODY
    ongoing: Identity = NOBODY


class TransactionCoordinator:
    """The transactions that this broker coordinates. Event loop only."""

    def __init__(self, host: Host, producer_ids: ProducerIds, markers: Markers) -> None:
        self._host = host
        self._producer_ids = producer_ids
        self._markers = markers
        self.shards: Shards[HeldTransactions] = Shards(
            TRANSACTION_STATE,
            host,
            size=self._topic_size,
            write_timeout_ms=lambda: host.settings.request_timeout_ms,
            new_state=self._new_state,
        )

    def _topic_size(self) -> Size:
        settings = self._host.settings
        return Size(
            settings.transaction_state_log_num_partitions,
            settings.transaction_state_log_replication_factor,
            settings.transaction_state_log_segment_bytes,
            settings.transaction_state_log_min_isr,
        )

    def _new_state(self, journal: Journal) -> HeldTransactions:
        return HeldTransactions(journal, self._carry_out)

    def start(self) -> None:
        """Begin to look for transactions that time out and ids that expire."""
        settings = self._host.settings
        abort_s = settings.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000
        self._host.spawn(self._now_and_then(abort_s, self.abort_timed_out))
        forget_s = settings.transaction_remove_expired_transaction_cleanup_interval_ms / 1000
        self._host.spawn(self._now_and_then(forget_s, self.forget_expired))

    async def _now_and_then(self, pause_s: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(pause_s)
            try:
                await work()
            except Exception:
                logger.exception(
                    "checking transactions for timeouts and expiry failed; trying again later"
                )

    async def abort_timed_out(self) -> None:
        """Abort transactions that have been open for longer than their producers wanted."""
        await abort_timed_out(list(self.held()), self._host.now_ms(), self.abort)

    async def forget_expired(self) -> None:
        """Forget transactional ids that nobody has used for long."""
        expiration_ms = self._host.settings.transactional_id_expiration_ms
        await forget_expired(list(self.held()), self._host.now_ms(), expiration_ms)

    def stop(self) -> None:
        """Send everyone who waits away; the broker is about to stop."""
        self.shards.close()

    def partition_changed(self, partition: Partition) -> None:
        """Follow the role that a partition of `__transaction_state` has been given."""
        self.shards.partition_changed(partition)

    def topic_deleted(self, name: str) -> None:
        self.shards.topic_deleted(name)

    # Which transactions are here

    def find(self, id: str) -> Transaction | Error:
        """Return what is known of a transactional id, or why nothing is."""
        shard = self.shards.find(id)
        if isinstance(shard, Error):
            return shard
        held = shard.by_id.get(id)
        if held is None or held.value is None:
            return Error.TRANSACTIONAL_ID_NOT_FOUND
        return held.value

    def list_transactions(self) -> list[Transaction] | Error:
        """Return all that are here; the error while some are still being read back."""
        if self.shards.is_loading:
            return Error.COORDINATOR_LOAD_IN_PROGRESS
        return [held.value for _, held in self.held() if held.value is not None]

    def held(self) -> Iterator[tuple[HeldTransactions, HeldTransaction]]:
        for shard in self.shards:
            for held in list(shard.by_id.values()):
                yield shard, held

    # What producers ask for

    async def initialize(self, id: str, request: Init) -> Outcome:
        """Give a producer its id and epoch, and abort what an earlier one has left open."""

        def decide(held: HeldTransaction, new_id: int | None) -> Decision:
            now_ms = self._host.now_ms()
            return machine.initialize(held.value, held.is_pending, request, id, now_ms, new_id)

        outcome = await self._decide(id, decide, creates=True)
        if not outcome.error:
            logger.info("transactional id %r: producer %d, epoch %d", id, *outcome.producer)
        return outcome

    async def add(
        self, id: str, producer: Identity, partitions: Collection[TopicPartition], version: int
    ) -> Error:
        """Add partitions to the producer's transaction; the first ones begin it."""

        def decide(held: HeldTransaction, new_id: int | None) -> Decision:
            now_ms = self._host.now_ms()
            pending = held.is_pending
            return machine.add(held.value, pending, producer, partitions, version, now_ms)

        return (await self._decide(id, decide, _PATIENCE_S)).error

    def verify(self, id: str, producer: Identity, partition: TopicPartition) -> Error:
        """Say whether a partition belongs to the producer's open transaction."""
        found = self.find(id)
        if found is Error.TRANSACTIONAL_ID_NOT_FOUND:
            return Error.INVALID_PRODUCER_ID_MAPPING
        return found if isinstance(found, Error) else machine.verify(found, producer, partition)

    async def end(self, id: str, request: End) -> Outcome:
        """Commit or abort; decided when this returns, and carried out soon after."""

        def decide(held: HeldTransaction, new_id: int | None) -> Decision:
            now_ms = self._host.now_ms()
            return machine.end(held.value, held.is_pending, request, now_ms, new_id)

        return await self._decide(id, decide)

    async def abort(self, held: HeldTransaction) -> None:
        """Abort a transaction that has timed out, unless it was ended meanwhile."""

        def decide(held: HeldTransaction, new_id: int | None) -> Decision:
            now_ms = self._host.now_ms()
            if held.value is None or held.is_pending:
                return Refused(Error.CONCURRENT_TRANSACTIONS)
            if not machine.has_timed_out(held.value, now_ms):
                return Refused(Error.INVALID_TXN_STATE)
            logger.info("transaction %r timed out and is aborted", held.id)
            return machine.abort(held.value, now_ms, new_id)

        await self._decide(held.id, decide)

    # How what is decided comes about

    async def _decide(
        self,
        id: str,
        decide: Callable[[HeldTransaction, int | None], Decision],
        patience_s: float = 0.0,
        *,
        creates: bool = False,
    ) -> Outcome:
        """Decide, write, and return the outcome.

        Whatever had to be waited for, the transaction may be another or somewhere else by then; so
        it is found and decided about again.
        """
        loop = self._host.loop
        deadline = loop.time() + patience_s
        new_id: int | None = None
        while True:
            shard = self.shards.find(id)
            if isinstance(shard, Error):
                return Outcome(shard)
            held = shard.by_id.get(id) or HeldTransaction(id)
            decision = decide(held, new_id)
            if isinstance(decision, NeedsProducerId):
                try:
                    new_id = await self._producer_ids.next()
                except StoreError as error:
                    logger.error("could not allocate a producer id: %s", error)
                    return Outcome(Error.COORDINATOR_NOT_AVAILABLE)
            elif isinstance(decision, Write):
                if creates:
                    shard.by_id.setdefault(id, held)
                return await self._write(shard, held, decision)
            elif not isinstance(decision, Refused):
                return Outcome(Error.NONE, decision.producer)
            elif decision.error is not Error.CONCURRENT_TRANSACTIONS or loop.time() >= deadline:
                return Outcome(decision.error)
            else:
                await asyncio.wait([held.when_settled(loop)], timeout=deadline - loop.time())

    async def _write(
        self, shard: HeldTransactions, held: HeldTransaction, decision: Write
    ) -> Outcome:
        written: asyncio.Future[Error] = self._host.loop.create_future()
        shard.write(held, decision.transaction, self._host.now_ms(), settler(written))
        error = written.result() if written.done() else await written
        error = error or decision.error
        if not error and decision.fence != NOBODY:
            error = await self._fence(shard, held.id, decision)
        if error:
            return Outcome(error)
        return Outcome(Error.NONE, decision.producer, decision.ongoing)

    async def _fence(self, shard: HeldTransactions, id: str, decision: Write) -> Error:
        """Shut whoever wrote a transaction that was taken over out of its partitions.

        If that takes too long, it is taken over once more by whoever asks again. Until then nobody
        knows the identity that could end it.
        """
        partitions = tuple(sorted(decision.transaction.partitions))
        fence = Marker(*decision.fence, False, shard.epoch, machine.TV2, partitions, True)
        fenced: asyncio.Future[None] = self._host.loop.create_future()
        self._markers.send(
            id,
            fence,
            lambda: not shard.has_ended and not fenced.done(),
            lambda: fenced.set_result(None),
        )
        if not fenced.done():
            await asyncio.wait([fenced], timeout=WITHIN_S)
        if fenced.done():
            return Error.NONE
        fenced.cancel()
        logger.warning(
            "transaction %r was taken over, but not all partitions know about this yet",
            id,
        )
        return Error.COORDINATOR_NOT_AVAILABLE

    def _carry_out(self, shard: HeldTransactions, held: HeldTransaction) -> None:
        """Write the markers of a decided transaction, then that it is complete."""
        decided = held.value
        assert decided is not None
        marker = Marker(
            *decided.producer, decided.commits, shard.epoch, decided.version,
            tuple(sorted(decided.partitions)),
        )  # fmt: skip
        self._markers.send(
            held.id, marker, lambda: not shard.has_ended, lambda: self._complete(shard, held)
        )

    def _complete(self, shard: HeldTransactions, held: HeldTransaction) -> None:
        decided = held.value
        assert decided is not None
        now_ms = self._host.now_ms()

        def done(error: Error) -> None:
            if error and not held.is_pending and not shard.has_ended:
                # It was not appended, for lack of replicas.
                logger.warning(
                    "could not record that transaction %r is complete, trying again: %s",
                    held.id,
                    error.name,
                )
                self._host.loop.call_later(_PAUSE_S, self._try_again, shard, held)

        shard.write(held, machine.complete(decided, now_ms), now_ms, done)

    def _try_again(self, shard: HeldTransactions, held: HeldTransaction) -> None:
        if not shard.has_ended:
            self._complete(shard, held)
