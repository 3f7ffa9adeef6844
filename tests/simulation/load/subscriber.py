"""Subscribers: members of a consumer group of KIP-848, who follow the coordinator's assignment.

They join, take what they are given, give up what they are told to after a while, and commit. Some
leave, or die without a word, and come back; some are static. Now and then one commits late, in an
epoch that is over for it.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.simulation.checks.history import History, Violation
from tests.simulation.checks.ownership import LATE_S, Claim, Ownership
from tests.simulation.core.world import World
from tests.simulation.load.talker import TIMEOUT_S, Failed, Talker

GROUP = "subscribers"
SESSION_S = 6.0
_REBALANCE_S = 8.0
_JOINS, _LEAVES, _LEAVES_FOR_NOW = 0, -1, -2
_ELSEWHERE = (Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE)
_GONE = (
    Error.UNKNOWN_MEMBER_ID, Error.FENCED_MEMBER_EPOCH, Error.FENCED_INSTANCE_ID,
    Error.UNRELEASED_INSTANCE_ID, Error.GROUP_ID_NOT_FOUND,
)  # fmt: skip
_AGAIN = (
    *_ELSEWHERE, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.STALE_MEMBER_EPOCH,
    Error.UNKNOWN_TOPIC_ID, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.REQUEST_TIMED_OUT,
)  # fmt: skip


class Subscriber(Talker):
    """One member at a time; each life has another member id."""

    def __init__(
        self,
        world: World,
        history: History,
        ownership: Ownership,
        name: str,
        topic: str,
        every_s: float,
    ) -> None:
        super().__init__(world, name)
        self._history = history
        self._ownership = ownership
        self._topic = topic
        self._topic_id: UUID | None = None
        self._every_s = every_s
        self._patience_s = self.dice.choice([0.7, TIMEOUT_S])
        self._instance_id = name if self.dice.random() < 0.4 else None
        self._coordinator: int | None = None
        self._lives = 0
        # The last epoch that each of its lives was told; _LEAVES once the coordinator forgot it.
        self._epochs: dict[str, int] = {}
        # In the end nobody comes or goes.
        self.is_calm = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._lives += 1
        self._member_id = f"{self.name}#{self._lives}"
        self._epoch = _JOINS
        self._is_full = True
        self._claims: dict[int, Claim] = {}
        self._positions: dict[int, int] = {}
        self._target: set[int] = set()
        self._unheard_s: float | None = None
        # Heartbeats that were given up: when, and what they said that it has.
        self._late: list[tuple[float, frozenset[int]]] = []

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                await self.beat()
                if self._epoch > _JOINS:
                    await self._follow()
            except Failed:
                self._coordinator, self._is_full = None, True
            await self.pause(self._every_s)

    # -- membership

    async def beat(self) -> None:
        """Send a heartbeat, and take in what it is told."""
        if self._topic_id is None:
            self._topic_id = (await self.find_leader(self._topic, 0)).topic_id
        owned = frozenset(self._claims)
        sent_s = self.loop.now_s
        if self._unheard_s is None:
            self._unheard_s = sent_s
        says_all = self._is_full
        try:
            answer = await self._heartbeat(owned, says_all)
        except Failed:
            self._late.append((self.loop.now_s, owned))
            self._coordinator, self._is_full = None, True
            raise
        error = Error(answer.error_code)
        if error is not Error.NONE:
            self._refused(error)
            return
        self._history.count("subscriber heard")
        began_s, self._unheard_s, self._is_full = self._unheard_s, None, False
        self._epoch = self._epochs[self._member_id] = int(answer.member_epoch)
        for claim in self._claims.values():
            claim.session_s = sent_s + SESSION_S
        if answer.assignment is not None:
            self._told(
                {
                    partition
                    for topic in answer.assignment.topic_partitions
                    if topic.topic_id == self._topic_id
                    for partition in topic.partitions
                },
                sent_s,
                began_s,
            )

    async def _heartbeat(self, owned: frozenset[int], says_all: bool) -> Any:
        values: dict[str, Any] = {}
        if says_all:
            values = {"subscribed_topic_names": [self._topic], "rebalance_timeout": _rebalance_ms()}
        has = [{"topic_id": self._topic_id, "partitions": sorted(owned)}] if owned else []
        return await self._ask_coordinator(
            Api.CONSUMER_GROUP_HEARTBEAT,
            group_id=GROUP,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=self._instance_id,
            topic_partitions=has,
            **{"rebalance_timeout": -1, "subscribed_topic_names": None, **values},
        )

    def _told(self, target: set[int], sent_s: float, began_s: float) -> None:
        """Take what is new, and know what is to be given up."""
        self._target = target
        for partition, claim in self._claims.items():
            if partition in target:
                continue
            claim.revoked_s = min(claim.revoked_s, began_s + _REBALANCE_S)
        for partition in sorted(target - self._claims.keys()):
            late = [given_up_s for given_up_s, owned in self._late if partition not in owned]
            doubtful_until_s = max(late, default=-LATE_S) + LATE_S
            claim = self._ownership.claim(
                partition, self.name, sent_s + SESSION_S, doubtful_until_s
            )
            self._claims[partition] = claim
            self._history.count("partition given to a subscriber")
            self.world.tell(self.name, f"has partition {partition} in epoch {self._epoch}")

    def _refused(self, error: Error) -> None:
        self._history.count(f"{error.name} for a subscriber")
        if error in _ELSEWHERE:
            self._coordinator, self._is_full = None, True
        elif error in _GONE:
            self._epochs[self._member_id] = _LEAVES
            self._lose_all()
        elif error not in _AGAIN:
            raise Violation(f"{self.name} was told {error.name}")

    def _lose_all(self) -> None:
        for partition in self._claims:
            self._ownership.release(partition, self.name)
        self._begin_anew()

    @property
    def partitions(self) -> int:
        """How many partitions it believes to have."""
        return len(self._claims)

    @property
    def unwanted(self) -> list[int]:
        """What it has, and is to give up."""
        return [partition for partition in self._claims if partition not in self._target]

    async def _follow(self) -> None:
        """Give up what others are to have, and work on the rest."""
        unwanted = self.unwanted
        if unwanted and self.dice.random() < 0.7:
            await self.give_up(unwanted)
        elif self._claims and self.dice.random() < 0.5:
            partition = self.dice.choice(sorted(self._claims))
            await self._work(partition)
        chance = self.dice.random()
        if chance < 0.03 and not self.is_calm:
            await self.leave()
        elif chance < 0.06 and not self.is_calm:
            await self._crash()

    async def give_up(self, partitions: list[int]) -> None:
        epoch = self._epoch
        for partition in partitions:
            position = self._positions.pop(partition, None)
            if position is not None and self.dice.random() < 0.5:
                await self._commit(partition, position + 1, epoch)
            self._ownership.release(partition, self.name)
            self._claims.pop(partition, None)
            if position is not None and self.dice.random() < 0.5:
                self.start(self._commit_late(self._member_id, partition, position + 1, epoch))

    async def leave(self) -> None:
        """Say that it goes, and begin another life."""
        epoch = _LEAVES if self._instance_id is None else _LEAVES_FOR_NOW
        member_id, instance_id = self._member_id, self._instance_id
        self._history.count("subscriber left")
        self._lose_all()
        answer = await self._ask_coordinator(
            Api.CONSUMER_GROUP_HEARTBEAT,
            group_id=GROUP,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            rebalance_timeout=-1,
            subscribed_topic_names=None,
            topic_partitions=None,
        )
        if Error(answer.error_code) is Error.NONE:
            self._epochs[member_id] = _LEAVES
        await self.pause(self.dice.choice([0.1, 2.0]))

    async def _crash(self) -> None:
        """Die without a word; another life begins before the session is over, or after."""
        self._history.count("subscriber crashed")
        self._lose_all()
        for connection in self._connections.values():
            connection.close()
        await self.pause(self.dice.choice([0.1, SESSION_S]))

    # -- offsets

    async def _work(self, partition: int) -> None:
        if partition not in self._positions:
            position = await self._committed(partition)
            if position is None:
                return
            self._positions[partition] = position
        position = self._positions[partition] + 1
        if await self._commit(partition, position, self._epoch) and partition in self._positions:
            self._positions[partition] = position

    async def _committed(self, partition: int) -> int | None:
        least = self._ownership.acknowledged.get(partition, -1)
        wanted = {"topic_id": self._topic_id, "partition_indexes": [partition]}
        group = {
            "group_id": GROUP, "member_id": self._member_id, "member_epoch": self._epoch,
            "topics": [wanted],
        }  # fmt: skip
        answer = await self._ask_coordinator(Api.OFFSET_FETCH, groups=[group], require_stable=True)
        (found,) = answer.groups
        error = Error(found.error_code)
        if error is Error.NONE:
            (part,) = found.topics[0].partitions
            error = Error(part.error_code)
            if error is Error.NONE:
                offset = int(part.committed_offset)
                self._ownership.found(self.name, partition, least, offset)
                return max(offset, 0)
        self._refused(error)
        return None

    async def _commit_late(self, member_id: str, partition: int, position: int, epoch: int) -> None:
        """Commit what was given up, by the epoch in which it was one's own, once that is over.

        It goes on while there is more to give up, as in Kafka (KAFKA-19974). A member's commits in
        its own epoch count for every partition, even for one that another has got by then.
        """
        await self.pause(self.dice.choice([0.3, 1.0, 3.0]))
        while self._epochs[member_id] == epoch:
            if member_id != self._member_id or self.is_stopping:
                return
            await self.pause(0.3)
        if partition in self._claims:
            return
        try:
            await self._commit(partition, position, epoch, member_id)
        except Failed:
            self._coordinator = None

    async def _commit(
        self, partition: int, position: int, epoch: int, member_id: str | None = None
    ) -> bool:
        ownership, sent_s = self._ownership, self.loop.now_s
        ownership.attempted[partition] = max(position, ownership.attempted.get(partition, -1))
        before = ownership.acknowledged.get(partition, -1)
        part = {
            "partition_index": partition,
            "committed_offset": position,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        try:
            answer = await self._ask_coordinator(
                Api.OFFSET_COMMIT,
                group_id=GROUP,
                generation_id_or_member_epoch=epoch,
                member_id=member_id or self._member_id,
                group_instance_id=None,
                topics=[{"topic_id": self._topic_id, "partitions": [part]}],
            )
        except Failed:
            ownership.unanswered.setdefault(partition, []).append((self.loop.now_s, position))
            raise
        error = Error(answer.topics[0].partitions[0].error_code)
        if error is not Error.NONE:
            self._history.count(f"{error.name} for a subscriber's commit")
            if error in _ELSEWHERE:
                self._coordinator = None
            elif error not in _AGAIN and error not in _GONE:
                raise Violation(f"{self.name} was told {error.name} for a commit")
            return False
        ownership.committed(self.name, partition, position, epoch, before, sent_s)
        self._history.count("offset committed by a subscriber")
        return True

    # -- asking

    async def _ask_coordinator(self, api: Api, **values: Any) -> Any:
        if self._coordinator is None:
            answer = await self.ask(
                self.any_broker(), Api.FIND_COORDINATOR, key_type=0, coordinator_keys=[GROUP]
            )
            (found,) = answer.coordinators
            if found.error_code != Error.NONE:
                raise Failed("no coordinator")
            self._coordinator = int(found.node_id)
        return await self.ask(self._coordinator, api, self._patience_s, **values)


def _rebalance_ms() -> int:
    return int(_REBALANCE_S * 1000)
