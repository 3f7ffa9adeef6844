"""Transactional producers, in both dialects.

The first dialect (TV1) names partitions before it writes to them, and keeps its epoch from one
transaction to the next: so a request that was never answered may come late and meet a later
transaction. Nothing but a new epoch helps against that; whoever was not answered asks for one
before its next transaction. In the second dialect (TV2, KIP-890) each transaction has its own
epoch, and everything may be sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from moldau.records.record import Record, build_batch
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.simulation.checks.history import History, Violation
from tests.simulation.checks.transactions import Attempt, Fate, Identity, Ledger
from tests.simulation.core.world import World
from tests.simulation.load.talker import BACKOFF_S, TIMEOUT_S, Failed, Leader, Talker

TIMEOUT_MS = 6000
PARTITIONS = 2
# The last versions of the first dialect.
_TV1 = {
    Api.PRODUCE: 11,
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.TXN_OFFSET_COMMIT: 4,
    Api.END_TXN: 4,
}
# The last one: the id of its producer has changed since, because its epochs ran out.
_FENCED = frozenset(
    (
        Error.PRODUCER_FENCED,
        Error.INVALID_PRODUCER_EPOCH,
        Error.INVALID_PRODUCER_ID_MAPPING,
    )
)
_ELSEWHERE = frozenset((Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE))
_AGAIN = frozenset(
    (
        *_ELSEWHERE,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.CONCURRENT_TRANSACTIONS,
        Error.REQUEST_TIMED_OUT,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.KAFKA_STORAGE_ERROR,
        Error.UNSTABLE_OFFSET_COMMIT,
        # A leader whose clock is wrong takes it for a record of the future.
        Error.INVALID_TIMESTAMP,
        Error.NETWORK_EXCEPTION,
    )
)
_ABORTABLE = frozenset((Error.TRANSACTION_ABORTABLE, Error.INVALID_TXN_STATE))


class Fenced(Exception):
    """Somebody else goes by this transactional id now, or the transaction took too long."""


class GiveUp(Exception):
    """The transaction has to be aborted."""


class Transactional(Talker):
    """Writes transactions to the partitions of a topic, commits some of them and aborts others."""

    def __init__(
        self,
        world: World,
        history: History,
        ledger: Ledger,
        name: str,
        id: str,
        topic: str,
        dialect: int,
        every_s: float,
    ) -> None:
        super().__init__(world, name)
        self._history = history
        self._ledger = ledger
        self._id = id
        self._topic = topic
        self._dialect = dialect
        self._every_s = every_s
        self.coordinator: int | None = None
        self.group_coordinator: int | None = None
        self._leaders: dict[int, Leader] = {}
        self._sequences: dict[int, int] = {}
        self.identity = Identity(-1, -1)
        # What it says besides when it asks for an epoch (KIP-939).
        self.two_phase: dict[str, bool] = {}
        # A request of this epoch may still be under way.
        self._is_unsure = False
        self._number = 0
        self.is_done = False
        # Some abort what was not answered, instead of sending it again.
        self.is_impatient = world.dice(f"patience of {name}").random() < 0.5

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                await self.initialize()
                while not self.is_stopping:
                    await self._transaction()
                    await self.pause(self._every_s)
                    if self._is_unsure and self._dialect == 1:
                        await self.initialize()
            except Fenced:
                self._history.count("producer fenced")
                if self.dice.random() < 0.6:
                    self.identity = Identity(-1, -1)
                # Otherwise it has not understood, and wants to go on as who it was (KIP-360).
                # Another may be at work with the same id, and should get something done.
                await self.pause(5 * self._every_s + 2.0)
        self.is_done = True

    # -- one transaction

    def begin(self) -> Attempt:
        return self._ledger.begin(self._id, self.name, self.identity)

    async def _transaction(self) -> None:
        attempt = self.begin()
        luck = self.dice.random()
        try:
            await self._write(attempt)
            if luck < 0.08:
                # Longer than the coordinator waits.
                await asyncio.sleep(TIMEOUT_MS / 1000 * self.dice.uniform(0.8, 1.6))
            commits = luck < 0.8 and bool(attempt.values)
        except GiveUp:
            self._history.count("transaction given up")
            commits = False
        if commits or attempt.values or self._dialect == 1:
            await self.end(attempt, commits)

    async def _write(self, attempt: Attempt) -> None:
        for _ in range(1 + self.dice.randrange(3)):
            partition = self.dice.randrange(PARTITIONS)
            values = []
            for _ in range(1 + self.dice.randrange(2)):
                self._number += 1
                values.append(f"{self.name}:{attempt.number}:{self._number}".encode())
            await self.produce(attempt, partition, values)
            if self.dice.random() < 0.3:
                await self.pause(0.2)

    async def produce(self, attempt: Attempt, partition: int, values: list[bytes]) -> None:
        """Write a batch, again and again until it is acknowledged."""
        if self._dialect == 1:
            await self._add_partition(partition)
        for value in values:
            self._ledger.add(attempt, value)
        sequence = self._sequences.get(partition, 0)
        stamp = int(1_767_225_600_000 + self.loop.now_s * 1000)
        data = bytes(
            build_batch(
                [Record(place, stamp, None, value) for place, value in enumerate(values)],
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
        )
        sent_s = self.loop.now_s
        async for _ in self._tries():
            code = await self._send(partition, data)
            if code is Error.NONE or code is Error.DUPLICATE_SEQUENCE_NUMBER:
                break
            if code is Error.NETWORK_EXCEPTION and self._dialect == 1 and self.is_impatient:
                # The write may still arrive, after the end of its transaction and in its epoch.
                raise GiveUp
            self._leaders.pop(partition, None)
            self._refused(code, "write")
        self._ledger.taken(self._id, self.name, self.identity, sent_s, "write")
        self._sequences[partition] = sequence + len(values)
        self._history.count(f"transactional write in TV{self._dialect}")

    async def _send(self, partition: int, data: bytes) -> Error:
        leader = self._leaders.get(partition)
        if leader is None:
            leader = self._leaders[partition] = await self.find_leader(self._topic, partition)
        topic = {
            "name": self._topic,
            "topic_id": leader.topic_id,
            "partition_data": [{"index": partition, "records": data}],
        }
        answer = await self._try(
            leader.broker,
            Api.PRODUCE,
            transactional_id=self._id,
            acks=-1,
            timeout=int(TIMEOUT_S * 1000),
            topic_data=[topic],
        )
        if answer is None:
            return Error.NETWORK_EXCEPTION
        return Error(answer.responses[0].partition_responses[0].error_code)

    async def _add_partition(self, partition: int) -> None:
        wanted = [{"name": self._topic, "partitions": [partition]}]
        sent_s = self.loop.now_s
        async for _ in self._tries():
            answer = await self._ask_coordinator(
                Api.ADD_PARTITIONS_TO_TXN,
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=self.identity.producer_id,
                v3_and_below_producer_epoch=self.identity.epoch,
                v3_and_below_topics=wanted,
            )
            if answer is None:
                continue
            result = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
            code = Error(result.partition_error_code)
            if code is Error.NONE:
                break
            self._refused(code, "add a partition")
        self._ledger.taken(self._id, self.name, self.identity, sent_s, "add a partition")

    async def end(self, attempt: Attempt, commits: bool) -> None:
        """Commit or abort, and ask again until there is an answer."""
        sent_s = self.loop.now_s
        was_unanswered = False
        if commits:
            attempt.fate = Fate.ASKED
        async for _ in self._tries():
            answer = await self._ask_coordinator(
                Api.END_TXN,
                transactional_id=self._id,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                committed=commits,
            )
            if answer is None:
                was_unanswered = True
                continue
            code = Error(answer.error_code)
            if code is Error.NONE:
                break
            if code in _AGAIN:
                # A decision that took too long may still come about.
                was_unanswered = was_unanswered or code in _ELSEWHERE
            elif commits and not was_unanswered:
                attempt.fate = Fate.REFUSED
            if code in _ABORTABLE:
                if not commits:
                    return
                assert self.coordinator is not None
                if self._ledger.coordinates(self.coordinator, self._id):
                    raise Violation(f"{self.name} was told {code.name} for the commit of {attempt}")
                # A coordinator without a session that has not heard of it yet: what it remembers
                # is over, and it can decide nothing. So with Kafka, whose producers give up, too.
                self._history.count(f"{code.name} of a former coordinator")
                raise Fenced
            self._refused(code, "end")
        self._ledger.taken(self._id, self.name, self.identity, sent_s, "end a transaction")
        attempt.fate = Fate.COMMITTED if commits else Fate.REFUSED
        self._history.count(f"{'commit' if commits else 'abort'} in TV{self._dialect}")
        if self._dialect == 2:
            self.identity = Identity(int(answer.producer_id), int(answer.producer_epoch))
            self._sequences.clear()

    # -- who it is

    async def initialize(self) -> None:
        """Get an epoch; as the one that it is, if it is anybody."""
        while True:
            sent_s, was = self.loop.now_s, self.identity
            answer = await self._ask_coordinator(
                Api.INIT_PRODUCER_ID,
                transactional_id=self._id,
                transaction_timeout=TIMEOUT_MS,
                producer_id=was.producer_id,
                producer_epoch=was.epoch,
                **self.two_phase,
            )
            if answer is not None:
                code = Error(answer.error_code)
                if code is Error.NONE:
                    break
                if code in _FENCED and was.epoch >= 0:
                    raise Fenced
                self._refused(code, "begin")
            await self.pause(BACKOFF_S)
        if was.epoch >= 0:
            self._ledger.taken(self._id, self.name, was, sent_s, "get another epoch")
        self.identity = Identity(int(answer.producer_id), int(answer.producer_epoch))
        self._ledger.granted(self._id, self.name, self.identity)
        self._history.count(f"producer initialized in TV{self._dialect}")
        self._sequences.clear()
        self._is_unsure = False

    # -- asking

    async def _tries(self) -> AsyncIterator[None]:
        while True:
            yield
            await self.pause(BACKOFF_S)

    async def _try(self, broker: int, api: Api, at_most: int | None = None, **values: Any) -> Any:
        """An answer, or None."""
        if self._dialect == 1:
            at_most = _TV1.get(api, at_most)
        try:
            return await self.ask(broker, api, at_most=at_most, **values)
        except Failed:
            self._is_unsure = True
            return None

    async def _ask_coordinator(self, api: Api, **values: Any) -> Any:
        if self.coordinator is None:
            self.coordinator = await self._find(1, self._id)
            if self.coordinator is None:
                return None
        answer = await self._try(self.coordinator, api, **values)
        if answer is None:
            self.coordinator = None
        return answer

    async def _find(self, key_type: int, key: str) -> int | None:
        try:
            answer = await self.ask(
                self.any_broker(), Api.FIND_COORDINATOR, key_type=key_type, coordinator_keys=[key]
            )
        except Failed:
            return None
        (found,) = answer.coordinators
        return int(found.node_id) if found.error_code == Error.NONE else None

    def _refused(self, code: Error, what: str) -> None:
        """Return if it is worth another try."""
        self._history.count(f"{code.name} for a transaction")
        if code in _FENCED:
            raise Fenced
        if code in _ELSEWHERE:
            self.coordinator = self.group_coordinator = None
        if code in _ABORTABLE:
            raise GiveUp
        if code not in _AGAIN:
            raise Violation(f"{self.name} was told {code.name} when it wanted to {what}")
