"""Members of a share group: each is given records of its own, and says what became of them.

They accept, release, reject and renew, or say nothing until the lock runs out; in ShareFetch or in
ShareAcknowledge. Some leave, or die without a word, and come back as somebody else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from moldau.peer.aio import AsyncConnection
from moldau.records.batch import batches
from moldau.records.record import records_of
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.simulation.checks.deliveries import Deliveries, Delivery, Kind, Regime
from tests.simulation.checks.history import History, Violation
from tests.simulation.core.world import World
from tests.simulation.load.talker import TIMEOUT_S, Failed, Leader, Talker

GROUP = "sharers"
LOCK_S = 4.0
_SESSION_S = 6.0
_HEARTBEAT_S = 1.0
_JOINS, _LEAVES, _LAST = 0, -1, -1
_ELSEWHERE = (Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE)
_GONE = (Error.UNKNOWN_MEMBER_ID, Error.FENCED_MEMBER_EPOCH, Error.GROUP_ID_NOT_FOUND)
_SESSION = (Error.SHARE_SESSION_NOT_FOUND, Error.INVALID_SHARE_SESSION_EPOCH)
# It has the record no more; or whoever leads now has never given it to anybody.
_LOST = (Error.INVALID_RECORD_STATE, Error.INVALID_REQUEST)
_AGAIN = (
    *_ELSEWHERE, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_LEADER_OR_FOLLOWER,
    Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID, Error.KAFKA_STORAGE_ERROR,
    Error.UNKNOWN_SERVER_ERROR, Error.REQUEST_TIMED_OUT, Error.FENCED_LEADER_EPOCH,
)  # fmt: skip
# What is said of a record, and how often; None: nothing, until the lock is over.
_WORDS = (Kind.ACCEPT,) * 9 + (Kind.RELEASE,) * 3 + (Kind.REJECT,) * 2 + (Kind.RENEW,) * 3 + (None,)


class ShareMember(Talker):
    """One member at a time; each life has another member id.

    `regime_of` tells who leads a partition by what the cluster has agreed on.
    """

    def __init__(
        self,
        world: World,
        history: History,
        deliveries: Deliveries,
        name: str,
        topic: str,
        every_s: float,
        regime_of: Callable[[int], Regime | None],
    ) -> None:
        super().__init__(world, name)
        self._history = history
        self._deliveries = deliveries
        self._topic = topic
        self.topic_id: UUID | None = None
        self._every_s = every_s
        self._regime_of = regime_of
        self._patience_s = self.dice.choice([1.5, TIMEOUT_S])
        self._coordinator: int | None = None
        self._leaders: dict[int, Leader] = {}
        self._lives = 0
        self._abandoned: list[AsyncConnection] = []
        # Towards the end whatever there is has to be finished.
        self.is_finishing = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._lives += 1
        self._member_id = f"{self.name}#{self._lives}"
        self._epoch = _JOINS
        self.assigned: list[int] = []
        self._heard_s = -_HEARTBEAT_S
        # The epoch of the next request, by broker; and what it has of which broker.
        self._sessions: dict[int, int] = {}
        self._held: dict[int, dict[tuple[int, int], Delivery]] = {}

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                if self.loop.now_s - self._heard_s >= _HEARTBEAT_S:
                    await self.beat()
                for partition in list(self.assigned):
                    await self._share(partition)
            except Failed:
                self._coordinator = None
            await self.pause(self._every_s)

    # -- membership

    async def beat(self) -> None:
        joins = self._epoch == _JOINS
        answer = await self._ask_coordinator(
            member_id=self._member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=[self._topic] if joins else None,
        )
        error = Error(answer.error_code)
        if error is not Error.NONE:
            self._history.count(f"{error.name} for a sharer")
            if error in _GONE:
                self._forget_all()
            elif error in _ELSEWHERE:
                self._coordinator = None
            elif error not in _AGAIN:
                raise Violation(f"{self.name} was told {error.name} for a heartbeat")
            return
        self._heard_s = self.loop.now_s
        self._epoch = int(answer.member_epoch)
        if answer.assignment is not None:
            self.assigned = []
            for topic in answer.assignment.topic_partitions:
                self.topic_id = topic.topic_id
                self.assigned += list(topic.partitions)
        chance = self.dice.random()
        if chance < 0.02 and not self.is_finishing:
            await self.leave()
        elif chance < 0.05 and not self.is_finishing:
            await self._crash()

    async def leave(self) -> None:
        self._history.count("sharer left")
        for broker in list(self._sessions):
            await self.request(Api.SHARE_ACKNOWLEDGE, broker, {}, is_last=True)
        member_id = self._member_id
        self._forget_all()
        await self._ask_coordinator(
            member_id=member_id, member_epoch=_LEAVES, subscribed_topic_names=None
        )

    async def _crash(self) -> None:
        """Die without a word; the connections break, or with the machine's power: then the brokers
        hear nothing of it."""
        self._history.count("sharer crashed")
        self._forget_all()
        if self.dice.random() < 0.5:
            for connection in self._connections.values():
                connection.close()
        # Those that stay open must not be closed by losing the last reference to them either.
        self._abandoned += self._connections.values()
        self._connections.clear()
        await self.pause(self.dice.choice([0.1, 2.0, _SESSION_S]))

    def _forget_all(self) -> None:
        self._begin_anew()

    def _forget(self, broker: int) -> None:
        """The session with a leader is over, and all that came with it."""
        self._sessions.pop(broker, None)
        self._held.pop(broker, None)

    # -- records

    async def _share(self, partition: int) -> None:
        leader = self._leaders.get(partition)
        if leader is None:
            leader = await self.leader_of(self._topic, partition)
            if leader is None:
                return
            self._leaders[partition] = leader
        broker = leader.broker
        words = self._words(broker)
        in_fetch = self._sessions.get(broker) and self.dice.random() < 0.4
        if words and not in_fetch:
            await self.request(Api.SHARE_ACKNOWLEDGE, broker, words)
            words = {}
        if self._leaders.get(partition) is leader:
            await self.request(Api.SHARE_FETCH, broker, words, partition)

    def held(self, broker: int) -> list[Delivery]:
        """What it has of a broker, by offsets."""
        return sorted(self._held.get(broker, {}).values(), key=lambda each: each.offset)

    def _words(self, broker: int) -> dict[Delivery, Kind]:
        """What to say now of what it has; of some nothing, until later or for good."""
        words: dict[Delivery, Kind] = {}
        for delivery in self._held.get(broker, {}).values():
            if self.dice.random() < (0.2 if not self.is_finishing else 0.0):
                continue
            kind = self.dice.choice(_WORDS) if not self.is_finishing else Kind.ACCEPT
            if kind is not None:
                words[delivery] = kind
        return words

    async def request(
        self,
        api: Api,
        broker: int,
        words: dict[Delivery, Kind],
        partition: int | None = None,
        *,
        is_last: bool = False,
    ) -> None:
        """Say something, and fetch if a partition is given."""
        sent_s, session = self.loop.now_s, self._sessions.get(broker, 0)
        regimes = {each: self._regime_of(each) for each in self.assigned}
        said = {} if not session else words
        topics: dict[int, list[dict[str, Any]]] = {} if partition is None else {partition: []}
        for delivery, kind in sorted(said.items(), key=lambda each: each[0].offset):
            self._deliveries.says(delivery, kind)
            batch = {"first_offset": delivery.offset, "last_offset": delivery.offset}
            topics.setdefault(delivery.partition, []).append({**batch, "acknowledge_types": [kind]})
        parts = [
            {"partition_index": index, "acknowledgement_batches": found}
            for index, found in topics.items()
        ]
        try:
            answer = await self.ask(
                broker,
                api,
                self._patience_s,
                group_id=GROUP,
                member_id=self._member_id,
                share_session_epoch=_LAST if is_last else session,
                is_renew_ack=Kind.RENEW in said.values(),
                topics=[{"topic_id": self.topic_id, "partitions": parts}] if parts else [],
                **(self._limits() if api is Api.SHARE_FETCH else {}),
            )
        except Failed:
            self._leaders.clear()
            self._forget(broker)
            raise
        error = Error(answer.error_code)
        if error is not Error.NONE:
            self._history.count(f"{error.name} for a sharer")
            if error not in _SESSION and error not in _AGAIN:
                raise Violation(f"{self.name} was told {error.name} by broker {broker}")
            self._forget(broker)
            return
        self._sessions[broker] = session + 1
        for topic in answer.responses:
            for part in topic.partitions:
                index = int(part.partition_index)
                of_it = {each: kind for each, kind in said.items() if each.partition == index}
                code = part.acknowledge_error_code if api is Api.SHARE_FETCH else part.error_code
                self._heard(broker, of_it, Error(code), sent_s)
                if api is Api.SHARE_FETCH:
                    self._take(broker, part, sent_s, regimes.get(index))

    def _limits(self) -> dict[str, Any]:
        """How much it wants at a time."""
        return {
            "max_wait": 300,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": self.dice.randrange(1, 6),
            "batch_size": 10,
            "share_acquire_mode": self.dice.randrange(2),
            "forgotten_topics_data": [],
        }

    def _heard(self, broker: int, words: dict[Delivery, Kind], error: Error, sent_s: float) -> None:
        held = self._held.get(broker, {})
        if words and error in _LOST:
            self._deliveries.refused(words, self._regime_of(next(iter(words)).partition))
        for delivery, kind in words.items():
            if kind is not Kind.RENEW or error is not Error.NONE:
                held.pop((delivery.partition, delivery.offset), None)
            if error is Error.NONE:
                self._deliveries.confirmed(delivery, kind, sent_s, LOCK_S)
                self._history.count(f"{kind.name} confirmed")
            elif error in _LOST:
                self._history.count(f"{kind.name} refused")
            elif error in _AGAIN:
                self._leaders.pop(delivery.partition, None)
                self._history.count(f"{error.name} for an acknowledgement")
            else:
                raise Violation(f"{self.name} was told {error.name} when it said {kind.name}")

    def _take(self, broker: int, part: Any, sent_s: float, before: Regime | None) -> None:
        index, error = int(part.partition_index), Error(part.error_code)
        if error is not Error.NONE:
            self._history.count(f"{error.name} for a sharer's fetch")
            if error not in _AGAIN:
                raise Violation(f"{self.name} was told {error.name} for a fetch")
            self._leaders.pop(index, None)
            return
        now = self._regime_of(index)
        regime = now if now == before and now is not None and now.broker == broker else None
        values = _values(part.records)
        held = self._held.setdefault(broker, {})
        for acquired in part.acquired_records:
            for offset in range(acquired.first_offset, acquired.last_offset + 1):
                if offset not in values:
                    raise Violation(f"{self.name} was given {offset} of {index} without its record")
                delivery = Delivery(
                    index, offset, self.name, int(acquired.delivery_count), sent_s,
                    self.loop.now_s, sent_s + LOCK_S, regime,
                )  # fmt: skip
                self._deliveries.delivered(delivery)
                held[index, offset] = delivery
                self._history.count("record shared")

    async def _ask_coordinator(self, **values: Any) -> Any:
        if self._coordinator is None:
            answer = await self.ask(
                self.any_broker(), Api.FIND_COORDINATOR, key_type=0, coordinator_keys=[GROUP]
            )
            (found,) = answer.coordinators
            if found.error_code != Error.NONE:
                raise Failed("no coordinator")
            self._coordinator = int(found.node_id)
        return await self.ask(
            self._coordinator, Api.SHARE_GROUP_HEARTBEAT, self._patience_s, group_id=GROUP, **values
        )


def _values(data: Any) -> dict[int, bytes]:
    """The records of an answer, by their offsets."""
    found = bytes(data) if data else b""
    return {
        record.offset: record.value or b""
        for position, _ in batches(found)
        for record in records_of(found, position)
    }
