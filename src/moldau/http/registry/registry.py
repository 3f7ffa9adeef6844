"""The registry on one broker: a copy of its state, and, on the broker that leads, its writes.

There is one writer at a time: the broker that leads partition 0 of `_schemas`. It decides on a
write only when it has applied everything that its log holds, and answers when every in-sync replica
has the record. What can go wrong, and what happens then:

    two registrations of the same schema at once    the second waits, and finds the first's id
    a program without a registry claims a version   the log is longer than what was decided on: the
                                                    decision is made again, with that claim in it
    the leader dies before it answers               the next leader reads the record or does not;
                                                    the client asks again, and finds it or not
    a deposed leader still answers                  no replica takes its record, so it says no
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from moldau.broker.coordination.journal import Journal, settler
from moldau.broker.coordination.node_host import NodeHost
from moldau.cluster.decisions.assignment import NewTopic
from moldau.http.registry.errors import no_leader, schema_too_large, store_failed, timed_out
from moldau.http.registry.following import TOPIC, SchemasFollower
from moldau.http.registry.turns import Turns
from moldau.schemas.registry.records import (
    Key,
    SchemaKey,
    SchemaValue,
    Value,
    encode_key,
    encode_value,
)
from moldau.schemas.registry.state import RegistryState, Version
from moldau.schemas.worker.process import SchemaWorker
from moldau.wire.errors import Error

if TYPE_CHECKING:
    from moldau.broker.server import Broker

logger = logging.getLogger("moldau.registry")

_REPLICAS = 3
_WRITE_WITHIN_S = 10.0
_PAUSE_S = 0.05
# Each lost attempt means that somebody else has written.
_TRIES = 100

T = TypeVar("T")
Write = tuple[Key, Value | None]
# What to write, and what to return once it is written.
Decision = Callable[[], Awaitable[tuple[list[Write], T]]]


class SchemaRegistry:
    """Event loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._host = NodeHost(broker.node, broker.controller, broker.replicas)
        self.follower = SchemasFollower(broker)
        self.worker = SchemaWorker()
        self.turns = Turns()
        self._turn = asyncio.Lock()

    @property
    def state(self) -> RegistryState:
        return self.follower.state

    @property
    def cluster_id(self) -> str:
        return self._broker.state.cluster_id

    async def start(self) -> None:
        self.follower.start()

    async def stop(self) -> None:
        await self.follower.stop()
        await self.worker.close()

    async def ensure_topic(self) -> None:
        """Create the topic unless it is there."""
        if TOPIC in self._broker.state.topics:
            return
        factor = min(_REPLICAS, len(self._broker.state.brokers))
        problem = await self._host.ensure_topic(
            NewTopic(TOPIC, 1, factor, configs={"cleanup.policy": "compact"})
        )
        if problem is not None:
            raise store_failed(f"{TOPIC} cannot be created: {problem.message}")

    async def write(self, decide: Decision[T]) -> T:
        """Write what `decide` says, which is asked again if the state has changed meanwhile."""
        try:
            async with asyncio.timeout(_WRITE_WITHIN_S), self._turn:
                for _ in range(_TRIES):
                    await self._catch_up()
                    decided_at = self.follower.applied
                    records, result = await decide()
                    if not records:
                        return result
                    if self._is_caught_up and self.follower.applied == decided_at:
                        await self._append([*self._carried_over(), *records])
                        return result
        except TimeoutError:
            raise timed_out(f"the write took longer than {_WRITE_WITHIN_S:g} s") from None
        raise store_failed(f"{_TRIES} attempts lost a race with other writers")

    @property
    def _is_caught_up(self) -> bool:
        partition = self.follower.partition
        return partition is not None and partition.is_leader and self.follower.has_read(partition)

    async def _catch_up(self) -> None:
        """Wait until this broker has applied all that its log holds; it must lead."""
        while not self._is_caught_up:
            partition = self.follower.partition
            if partition is None or not partition.is_leader:
                raise no_leader()
            if self.follower.applied < partition.log.log_end:
                await self.follower.until_applied(partition.log.log_end)
            else:
                # The log was cut, or is another topic's: the follower has to find out.
                self.follower.notify()
                await asyncio.sleep(_PAUSE_S)

    async def _append(self, records: list[Write]) -> None:
        partition = self.follower.partition
        assert partition is not None
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Error] = loop.create_future()
        journal = Journal(partition, loop, _WRITE_WITHIN_S)
        encoded = [
            (encode_key(key), None if value is None else encode_value(value))
            for key, value in records
        ]
        most = partition.log.config.max_message_bytes
        if any(len(key) + len(value or b"") + 200 > most for key, value in encoded):
            raise schema_too_large(most)
        journal.write(encoded, self._host.now_ms(), lambda: None, settler(answer))
        end = partition.log.log_end
        error = await answer
        if error:
            # The record may be there all the same: who asks again will find it, or write it.
            raise store_failed(f"the write was not confirmed ({error.name}); send it again")
        await self.follower.until_applied(end)

    def _carried_over(self) -> list[Write]:
        """Return the records that put an end to claims: those that won are written without a nonce,
        and no claim may win later that lost before."""
        state = self.state
        found: list[Write] = []
        for key in state.claims:
            version = state.version(key.subject, key.version)
            if version is not None and state.won(key):
                found.append(record_of(version))
            found.append((key, None))
        if found:
            logger.info("copying %d records written by programs without a registry", len(found))
        return found


def record_of(version: Version) -> Write:
    """Return the record of a version."""
    schema = version.schema
    value = SchemaValue(
        version.subject,
        version.version,
        version.id,
        schema.schema,
        version.deleted,
        schema.schema_type,
        list(schema.references) or None,
        schema.metadata,
        schema.rule_set,
    )
    return SchemaKey(version.subject, version.version), value
