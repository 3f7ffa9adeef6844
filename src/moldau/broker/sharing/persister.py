"""The persister: brings share-group states to their coordinators, and asks for them.

The coordinator of a state may be this broker. Others are asked, all that waits for the states of
one partition together, over a connection for each: answers come in order, and a partition whose
replicas are slow would hold up the others. What fails for the moment is tried again with whoever
coordinates then: a write that arrives twice does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from moldau.broker.coordination.host import Host
from moldau.broker.coordination.share.batches import StateBatch
from moldau.broker.coordination.share.coordinator import NOT_BEGUN, Found, Refused, ShareCoordinator
from moldau.broker.coordination.share.state import UNKNOWN, ShareKey, Update
from moldau.broker.coordination.transactions.outbox import Outbox
from moldau.peer.aio import AsyncConnection
from moldau.peer.errors import PeerError
from moldau.peer.peers import Peers, Purpose
from moldau.wire.apis import VERSIONS, Api
from moldau.wire.errors import Error
from moldau.wire.primitives import MalformedRequest
from moldau.wire.schemas import request_schema, response_schema

logger = logging.getLogger("moldau.share")

SHARING = Purpose("moldau-share-state")
# How long to try before whoever waits is told that it cannot be done for now.
_PATIENCE_S = 10.0
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
# The lane of what waits for no replica.
_FOR_SUMMARIES = -1
# Errors of a coordinator that is moving, or cannot write for the moment.
_PASSING = frozenset(
    {
        Error.NOT_COORDINATOR,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.NETWORK_EXCEPTION,
    }
)

_APIS = (
    Api.INITIALIZE_SHARE_GROUP_STATE,
    Api.READ_SHARE_GROUP_STATE,
    Api.WRITE_SHARE_GROUP_STATE,
    Api.DELETE_SHARE_GROUP_STATE,
    Api.READ_SHARE_GROUP_STATE_SUMMARY,
)

R = TypeVar("R")


class _Question(NamedTuple):
    """Something to ask of a coordinator: which API, about which partition, and what."""

    api: Api
    key: ShareKey
    values: dict[str, Any]


class Persister:
    """Reads and writes share-group states, wherever they are. Event loop only."""

    def __init__(self, host: Host, me: int, peers: Peers, coordinator: ShareCoordinator) -> None:
        self._host = host
        self._me = me
        self._peers = peers
        self._coordinator = coordinator
        # By broker and lane.
        self._outboxes: dict[tuple[int, int], Outbox[_Question, Any]] = {}
        self._has_loaded = False

    async def initialize(self, key: ShareKey, state_epoch: int, start: int) -> Refused | None:
        """Begin a state, or begin it anew."""
        refusal = await self._coordinator.shards.ensure_topic()
        if refusal is not None:
            return Refused(Error.COORDINATOR_NOT_AVAILABLE, refusal.message)
        values = {"state_epoch": state_epoch, "start_offset": start}
        question = _Question(Api.INITIALIZE_SHARE_GROUP_STATE, key, values)
        return await self._ask(
            question, lambda: self._coordinator.initialize(key, state_epoch, start), _nothing
        )

    async def read(self, key: ShareKey, leader_epoch: int) -> Found | Refused:
        """Return a state, to the leader of its partition."""
        refusal = await self._coordinator.shards.ensure_topic()
        if refusal is not None:
            return Refused(Error.COORDINATOR_NOT_AVAILABLE, refusal.message)
        question = _Question(Api.READ_SHARE_GROUP_STATE, key, {"leader_epoch": leader_epoch})
        return await self._ask(question, lambda: self._coordinator.read(key, leader_epoch), _found)

    async def write(self, key: ShareKey, state_epoch: int, update: Update) -> Refused | None:
        """Write what has changed."""
        values = {
            "state_epoch": state_epoch,
            "leader_epoch": update.leader_epoch,
            "start_offset": update.start,
            "delivery_complete_count": update.finished,
            "state_batches": [_encoded(batch) for batch in update.batches],
        }
        question = _Question(Api.WRITE_SHARE_GROUP_STATE, key, values)
        return await self._ask(
            question, lambda: self._coordinator.write(key, state_epoch, update), _nothing
        )

    async def delete(self, key: ShareKey) -> Refused | None:
        """Delete a state, if there is one."""
        question = _Question(Api.DELETE_SHARE_GROUP_STATE, key, {})
        return await self._ask(question, lambda: self._coordinator.delete(key), _nothing)

    async def summary(self, key: ShareKey) -> Found | Refused:
        """Return a state without its batches, to anybody."""

        async def here() -> Found | Refused:
            return self._coordinator.summary(key)

        if not self._coordinator.shards.has_topic:
            return NOT_BEGUN

        question = _Question(Api.READ_SHARE_GROUP_STATE_SUMMARY, key, {"leader_epoch": UNKNOWN})
        return await self._ask(question, here, _found)

    async def _ask(
        self, question: _Question, here: Callable[[], Awaitable[R]], read: Callable[[Any], R]
    ) -> R | Refused:
        deadline = self._host.loop.time() + _PATIENCE_S
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                answer = await self._ask_once(question, here, read)
            except Exception:
                # Whoever waits for a write has to hear of it, or nothing is ever written again.
                logger.exception("asking for the state of %s failed", question.key)
                return Refused(Error.UNKNOWN_SERVER_ERROR)
            if not isinstance(answer, Refused) or answer.error not in _PASSING:
                return answer
            if self._host.loop.time() + pause_s > deadline:
                logger.warning(
                    "no coordinator accepts the state of %s: %s", question.key, answer.error.name
                )
                return answer
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _ask_once(
        self, question: _Question, here: Callable[[], Awaitable[R]], read: Callable[[Any], R]
    ) -> R | Refused:
        leader = self._coordinator.shards.leader_of(str(question.key))
        if leader == self._me:
            return await here()
        if leader < 0:
            return Refused(Error.COORDINATOR_NOT_AVAILABLE)
        if not self._has_loaded:
            await asyncio.to_thread(_load_schemas)
            self._has_loaded = True
        try:
            answer = await self._outbox(leader, question).put(question)
        except (PeerError, TimeoutError, MalformedRequest) as problem:
            logger.info(
                "broker %d did not answer a question about share groups: %s", leader, problem
            )
            return Refused(Error.NETWORK_EXCEPTION)
        if answer is None:
            return Refused(Error.UNKNOWN_SERVER_ERROR, "the coordinator did not answer this")
        if answer.error_code:
            return Refused(_error(answer.error_code), answer.error_message)
        return read(answer)

    def _outbox(self, broker: int, question: _Question) -> Outbox[_Question, Any]:
        number = _FOR_SUMMARIES
        if question.api is not Api.READ_SHARE_GROUP_STATE_SUMMARY:
            number = self._coordinator.shards.partition_of(str(question.key))
        outbox = self._outboxes.get((broker, number))
        if outbox is None:
            lane = self._peers.lane(broker, SHARING, number)
            outbox = Outbox(self._host, lane, lambda question: question[:2], _exchange)
            self._outboxes[broker, number] = outbox
        return outbox


def _load_schemas() -> None:
    """Load what it takes to ask: it would hold the loop for longer than it may be held."""
    for api in _APIS:
        for version in range(VERSIONS[api].first, VERSIONS[api].last + 1):
            request_schema(api, version)
            response_schema(api, version)


async def _exchange(connection: AsyncConnection, questions: Sequence[_Question]) -> list[Any]:
    """Ask with one request for each API and group; all of them at once."""
    requests: dict[tuple[Api, str], list[_Question]] = {}
    for question in questions:
        requests.setdefault((question.api, question.key.group), []).append(question)
    answers: dict[tuple[Api, ShareKey], Any] = {}
    responses = await asyncio.gather(
        *(connection.ask(api, _request(group, some)) for (api, group), some in requests.items())
    )
    for (api, group), response in zip(requests, responses, strict=True):
        for topic in response.results:
            for each in topic.partitions:
                key = ShareKey(group, topic.topic_id, int(each.partition))
                answers[api, key] = each
    return [answers.get((question.api, question.key)) for question in questions]


def _request(group: str, questions: Sequence[_Question]) -> dict[str, Any]:
    topics: dict[Any, list[dict[str, Any]]] = {}
    for question in questions:
        partitions = topics.setdefault(question.key.topic_id, [])
        partitions.append({"partition": question.key.partition, **question.values})
    return {
        "group_id": group,
        "topics": [{"topic_id": id, "partitions": some} for id, some in topics.items()],
    }


def _encoded(batch: StateBatch) -> dict[str, int]:
    return {
        "first_offset": batch.first,
        "last_offset": batch.last,
        "delivery_state": batch.state,
        "delivery_count": batch.deliveries,
    }


def _found(answer: Any) -> Found:
    batches = tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in getattr(answer, "state_batches", ())
    )
    return Found(
        answer.state_epoch,
        getattr(answer, "leader_epoch", UNKNOWN),
        answer.start_offset,
        getattr(answer, "delivery_complete_count", UNKNOWN),
        batches,
    )


def _nothing(answer: Any) -> None:
    return None


def _error(code: int) -> Error:
    try:
        return Error(int(code))
    except ValueError:
        return Error.UNKNOWN_SERVER_ERROR
