"""Fetchers: each copies from one leader, one connection, one request for many partitions.

Of one leader's partitions, those that can be asked for are part of a fetch session; `admission`
says which. When a partition comes in while a request waits at the leader, another request follows
at once, and the leader lets go of the first.

Nothing is asked while this broker is not registered: the leader could not tell which of its lives
asks (KIP-903).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from uuid import UUID

from moldau.broker.node import Node
from moldau.broker.partitions.partition import Partition
from moldau.broker.replication.follower.admission import Admission
from moldau.broker.replication.follower.bounds import epoch_end, leader_bounds
from moldau.broker.replication.follower.fetch_session import FetcherSession
from moldau.broker.replication.follower.followed import Followed, Next
from moldau.broker.replication.follower.large_answers import LARGE, take_in_pieces
from moldau.broker.replication.follower.throttle import Throttle
from moldau.peer.aio import AsyncConnection
from moldau.peer.errors import PeerError, Refused
from moldau.peer.peers import Peers, Purpose
from moldau.wire.errors import Error
from moldau.wire.fetch.request import FetchPartition, FetchRequest
from moldau.wire.fetch.response import FetchAnswer
from moldau.wire.primitives import TopicIdPartition

logger = logging.getLogger("moldau.replication")

REPLICATION = Purpose("replica")
# How long beyond its own waiting time an answer may take before the connection counts as dead.
_PATIENCE_S = 5.0
# After this many bytes the loop serves others before it appends the rest of an answer.
_AT_A_TIME = 2 << 20
# What is next where the leader has to be asked first.
_ASKED = (Next.RELOCATE, Next.LEARN)

_SESSION_LOST = frozenset(
    (
        Error.FETCH_SESSION_ID_NOT_FOUND,
        Error.INVALID_FETCH_SESSION_EPOCH,
        Error.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)


class Fetcher:
    """Follows one leader for some of its partitions, until `stop`. Event loop only."""

    def __init__(
        self, node: Node, peers: Peers, leader: int, number: int, throttle: Throttle
    ) -> None:
        self._node = node
        self._leader = leader
        self._followed: dict[TopicIdPartition, Followed] = {}
        self._session = FetcherSession(self._wanted)
        self._admission = Admission(node, self._session, self._followed, throttle, self._ask_soon)
        self._lane = peers.lane(leader, REPLICATION, number, self._patience_s)
        self._connection: AsyncConnection | None = None
        # Questions that wait for their answers, with their numbers, which only go up.
        self._under_way: deque[tuple[int, asyncio.Future[FetchAnswer]]] = deque()
        self._questions = 0
        self._changed = asyncio.Event()
        self._will_ask = False
        self._is_down = False
        self._task: asyncio.Task[None] | None = None

    # What to follow

    def follow(self, partition: Partition) -> None:
        """Copy the partition from now on, in its current leader epoch."""
        followed = Followed(partition)
        key = followed.key
        known = self._followed.get(key)
        if known is not None and known.partition is partition and known.epoch == followed.epoch:
            return
        self._followed[key] = followed
        self._admission.admit(followed)
        if self._task is None:
            self._task = self._node.loop.create_task(self._run())

    def unfollow(self, partition: Partition) -> None:
        """Stop copying it; nothing is appended to it after this."""
        key = (partition.topic_id, partition.index)
        known = self._followed.get(key)
        if known is not None and known.partition is partition:
            del self._followed[key]
            self._session.remove(key)
            self._ask_soon()

    def leader_changed(self) -> None:
        """The leader registered, perhaps elsewhere, or is gone."""
        self._changed.set()

    async def stop(self) -> None:
        self._followed.clear()
        # Who was about to ask again finds nobody to ask.
        self._connection = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._admission.stop()

    # Talking to the leader

    async def _run(self) -> None:
        while True:
            try:
                await self._connect_and_copy()
                continue
            except PeerError as problem:
                level = logging.DEBUG if self._is_down else logging.WARNING
                logger.log(level, "cannot copy from broker %d: %s", self._leader, problem)
                self._is_down = True
            except Exception:
                logger.exception("copying from broker %d failed", self._leader)
            finally:
                self._hang_up()
            self._changed.clear()
            await self._until_changed(self._backoff_s)

    async def _connect_and_copy(self) -> None:
        while not self._followed or self._own_epoch() is None:
            self._changed.clear()
            await self._changed.wait()
        self._connection = connection = await self._lane.connection()
        if self._is_down:
            self._is_down = False
            logger.info("resumed copying from broker %d", self._leader)
        while self._followed:
            if not self._under_way:
                own_epoch = self._own_epoch()
                if own_epoch is None:
                    return
                self._ask(connection, own_epoch)
            question, answer = self._under_way[0]
            fetched = await answer
            self._under_way.popleft()
            await self._take(connection, question, fetched)

    def _patience_s(self) -> float:
        return self._node.settings.replica_fetch_wait_max_ms / 1000 + _PATIENCE_S

    def _hang_up(self) -> None:
        self._expect_nothing()
        self._connection = None
        self._lane.close()

    def _expect_nothing(self) -> None:
        """There is no session any more: what is under way of it counts for nothing."""
        for _, answer in self._under_way:
            answer.cancel()
        self._under_way.clear()
        self._session.reset()

    def _own_epoch(self) -> int | None:
        """Return the epoch of this broker's registration; None while it has none."""
        own = self._node.state.brokers.get(self._node.id)
        return None if own is None or own.epoch < 0 else own.epoch

    @property
    def _backoff_s(self) -> float:
        return self._node.settings.replica_fetch_backoff_ms / 1000

    async def _until_changed(self, at_most_s: float) -> None:
        try:
            async with asyncio.timeout(at_most_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def _ask(self, connection: AsyncConnection, own_epoch: int) -> None:
        node, session = self._node, self._session
        settings = node.settings
        self._questions += 1
        wanted, forgotten = session.next_request()
        request = FetchRequest(
            wanted,
            max_wait_ms=settings.replica_fetch_wait_max_ms,
            min_bytes=1,
            max_bytes=settings.replica_fetch_response_max_bytes,
            replica_id=node.id,
            replica_epoch=own_epoch,
            session_id=session.id,
            session_epoch=session.epoch,
            forgotten=forgotten,
        )
        session.sent()
        answer = connection.fetch(request)
        # A request that nobody awaits any more may still end with the connection.
        answer.add_done_callback(_looked_at)
        self._under_way.append((self._questions, answer))

    def _wanted(self, key: TopicIdPartition) -> FetchPartition:
        settings = self._node.settings
        # With few partitions each may have more: a round costs as much as copying a megabyte.
        share = settings.replica_fetch_response_max_bytes // max(len(self._session), 1)
        followed = self._followed[key]
        if self._node.id in followed.partition.adding:
            share = 0
        most = max(settings.replica_fetch_max_bytes, share)
        return followed.wanted(most, self._questions)

    def _ask_soon(self) -> None:
        """Tell the leader of a change, though a request may be waiting there."""
        self._changed.set()
        if not self._will_ask:
            self._will_ask = True
            self._node.loop.call_soon(self._ask_again)

    def _ask_again(self) -> None:
        self._will_ask = False
        connection, own_epoch = self._connection, self._own_epoch()
        if (
            connection is not None
            and connection.is_open
            and own_epoch is not None
            and len(self._under_way) == 1
            and self._session.id
            and self._session.has_changes
        ):
            self._ask(connection, own_epoch)

    # What the leader answers

    async def _take(self, connection: AsyncConnection, question: int, answer: FetchAnswer) -> None:
        if answer.error in _SESSION_LOST:
            self._expect_nothing()
            return
        if answer.error:
            raise Refused(answer.error, f"broker {self._leader} refused to serve this follower")
        if not self._session.id:
            self._session.established(answer.session_id)
            if not answer.session_id:
                self._session.reset()
        outcomes: dict[Next, list[Followed]] = {}
        try:
            await self._take_each(connection, question, answer, outcomes)
            self._carry_out(outcomes)
            await self._ask_leader(connection, outcomes)
        finally:
            self._carry_out(outcomes)
            # The connection was lost, say: nobody else would ask for these again in this epoch.
            if unanswered := [each for then in _ASKED for each in outcomes.get(then, ())]:
                self._admission.retry(unanswered)

    async def _take_each(
        self,
        connection: AsyncConnection,
        question: int,
        answer: FetchAnswer,
        outcomes: dict[Next, list[Followed]],
    ) -> None:
        """Apply an answer; what is no longer asked for goes to `outcomes`, by what comes next."""
        taken = 0
        records: memoryview | None = None
        for topic, partitions in answer.topics:
            assert isinstance(topic, UUID)
            for fetched in partitions:
                key = (topic, fetched.index)
                followed = self._followed.get(key)
                if followed is None or key not in self._session or not followed.is_current:
                    continue
                if fetched.records is not None and len(fetched.records) > LARGE:
                    is_current = partial(self._follows, followed)
                    outcome = await take_in_pieces(followed, fetched, question, is_current)
                else:
                    outcome = followed.take(fetched, question)
                if outcome is Next.MOVE:
                    self._session.update(key)
                elif outcome is not Next.STAY:
                    self._session.remove(key)
                    outcomes.setdefault(outcome, []).append(followed)
                if fetched.records is None:
                    continue
                records = fetched.records
                if self._node.id in followed.partition.adding:
                    self._admission.slow_down(followed, len(records))
                taken += len(records)
                if taken >= _AT_A_TIME:
                    taken = 0
                    await asyncio.sleep(0)
        if records is not None:
            connection.recycle(records)

    def _follows(self, followed: Followed) -> bool:
        """Return whether what the leader says about it counts."""
        key = followed.key
        return self._followed.get(key) is followed and key in self._session and followed.is_current

    def _carry_out(self, outcomes: dict[Next, list[Followed]]) -> None:
        """Do what is next for partitions about which the leader need not be asked, and take them
        out.
        """
        if waiting := outcomes.pop(Next.RETRY, None):
            self._admission.retry(waiting)
        if cut := outcomes.pop(Next.CHECKPOINT, None):
            self._admission.checkpoint(cut)
        for followed in outcomes.pop(Next.FLUSH, ()):
            self._admission.flush(followed)

    async def _ask_leader(
        self, connection: AsyncConnection, outcomes: dict[Next, list[Followed]]
    ) -> None:
        """Ask the leader about partitions one by one, and enter each where it belongs then."""
        for then, ask in ((Next.RELOCATE, self._relocate), (Next.LEARN, self._learn)):
            waiting = outcomes.get(then, [])
            while waiting:
                outcome = await ask(connection, waiting[-1])
                outcomes.setdefault(outcome, []).append(waiting.pop())

    async def _relocate(self, connection: AsyncConnection, followed: Followed) -> Next:
        try:
            start, end = await leader_bounds(connection, self._node.id, followed)
        except Refused as refusal:
            followed.complain(str(refusal), logging.DEBUG)
            return Next.RETRY
        if self._followed.get(followed.key) is not followed or not followed.is_current:
            return Next.STAY
        return followed.relocate(start, end)

    async def _learn(self, connection: AsyncConnection, followed: Followed) -> Next:
        last, log = followed.last_epoch, followed.partition.log
        log_end = log.log_end
        try:
            end = await epoch_end(connection, self._node.id, followed, last)
        except Refused as refusal:
            followed.complain(str(refusal), logging.DEBUG)
            return Next.RETRY
        if self._followed.get(followed.key) is followed and followed.is_current:
            if (followed.last_epoch, log.log_end) == (last, log_end):
                followed.learn(end)
            self._admission.admit(followed)
        return Next.STAY


def _looked_at(answer: asyncio.Future[FetchAnswer]) -> None:
    if not answer.cancelled():
        answer.exception()
