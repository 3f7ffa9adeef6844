"""Members of a consumer group: they join, read what they are assigned, and commit."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.simulation.checks.commits import Commits
from tests.simulation.checks.history import History
from tests.simulation.core.world import World
from tests.simulation.load.consumer import LentReader
from tests.simulation.load.talker import BACKOFF_S, TIMEOUT_S, Failed, Talker

GROUP = "group"
_SESSION_MS = 6000


class Member(Talker):
    """A member of the classic protocol. One leads, and gives each partition to somebody."""

    def __init__(
        self,
        world: World,
        history: History,
        commits: Commits,
        name: str,
        topic: str,
        partitions: int,
        every_s: float,
    ) -> None:
        super().__init__(world, name)
        self._history = history
        self._commits = commits
        self._topic = topic
        self._partitions = partitions
        self._every_s = every_s
        self._coordinator: int | None = None
        # Some look for another coordinator sooner than others.
        self.patience_s = self.dice.choice([0.7, TIMEOUT_S])
        self._member_id = ""
        self._generation = -1

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                assigned = await self.join()
                if assigned is not None:
                    await self._work(assigned)
            except Failed:
                self._coordinator = None
            await self.pause(BACKOFF_S)

    async def _ask_coordinator(self, api: Api, timeout_s: float = 0.0, **values: Any) -> Any:
        if self._coordinator is None:
            answer = await self.ask(
                self.any_broker(), Api.FIND_COORDINATOR, key_type=0, coordinator_keys=[GROUP]
            )
            (found,) = answer.coordinators
            if found.error_code != Error.NONE:
                raise Failed("no coordinator")
            self._coordinator = int(found.node_id)
        return await self.ask(self._coordinator, api, timeout_s or self.patience_s, **values)

    def _note(self, code: int) -> bool:
        """Whether it went well; if not, begin again as that error asks for."""
        error = Error(code)
        if error is Error.NONE:
            return True
        self._history.count(f"{error.name} for a member")
        if error in (Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE):
            self._coordinator = None
        elif error in (Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID):
            self._member_id = ""
        return False

    async def join(self) -> list[int] | None:
        answer = await self._ask_coordinator(
            Api.JOIN_GROUP,
            timeout_s=15.0,
            group_id=GROUP,
            session_timeout=_SESSION_MS,
            rebalance_timeout=_SESSION_MS,
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
            reason=None,
        )
        if answer.error_code == Error.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            return None
        if not self._note(answer.error_code):
            return None
        self._member_id, self._generation = answer.member_id, int(answer.generation_id)
        assignments = []
        if answer.leader == answer.member_id:
            members = sorted(each.member_id for each in answer.members)
            for place, member in enumerate(members):
                owned = bytes(range(place, self._partitions, len(members)))
                assignments.append({"member_id": member, "assignment": owned})
        synced = await self._ask_coordinator(
            Api.SYNC_GROUP,
            timeout_s=15.0,
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        return list(synced.assignment) if self._note(synced.error_code) else None

    async def _work(self, assigned: list[int]) -> None:
        """Read and commit until another generation begins."""
        readers: dict[int, LentReader] = {}
        for partition in assigned:
            leader = await self.find_leader(self._topic, partition)
            position = await self.committed(leader.topic_id, partition)
            if position is None:
                return
            reader = LentReader(self, self._history, self._topic, partition, position)
            reader.leader, reader.leader_id = leader, leader.topic_id
            readers[partition] = reader
        while not self.is_stopping:
            for partition, reader in readers.items():
                await reader.read_some()
                if reader.leader is None or not reader.position:
                    continue
                if not await self.commit(reader.leader.topic_id, partition, reader.position):
                    return
            beat = await self._ask_coordinator(
                Api.HEARTBEAT,
                group_id=GROUP,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=None,
            )
            if not self._note(beat.error_code):
                return
            await self.pause(self._every_s)

    async def committed(self, topic_id: UUID, partition: int) -> int | None:
        key = (topic_id, partition)
        since, generation = self._commits.known(key), self._generation
        wanted = {"topic_id": topic_id, "partition_indexes": [partition]}
        answer = await self._ask_coordinator(
            Api.OFFSET_FETCH,
            groups=[{"group_id": GROUP, "member_id": None, "member_epoch": -1, "topics": [wanted]}],
            require_stable=True,
        )
        (group,) = answer.groups
        if not self._note(group.error_code):
            return None
        (found,) = group.topics[0].partitions
        if not self._note(found.error_code):
            return None
        offset = int(found.committed_offset)
        place = f"{self._topic}-{partition} at broker {self._coordinator}"
        self._commits.read(self.name, place, key, since, offset, generation)
        self._history.count("committed offset read")
        return max(offset, 0)

    async def commit(self, topic_id: UUID, partition: int, position: int) -> bool:
        key, commits, generation = (topic_id, partition), self._commits, self._generation
        commits.attempt(key, position)
        since = commits.known(key)
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
                generation_id_or_member_epoch=generation,
                member_id=self._member_id,
                group_instance_id=None,
                topics=[{"topic_id": topic_id, "partitions": [part]}],
            )
        except Failed:
            commits.give_up(key, generation, position)
            raise
        if not self._note(answer.topics[0].partitions[0].error_code):
            return False
        place = f"{self._topic}-{partition}"
        commits.commit(self.name, place, key, since, generation, position)
        self._history.count("offset committed")
        return True


class Observer(Member):
    """Asks the coordinator that it knows for the committed offsets, and never joins.

    A coordinator answers only while it surely is one: so nobody is told less than was acknowledged
    before the question was asked. It asks on while it waits for answers, for a coordinator that has
    been frozen must not answer what was asked after another took over.
    """

    async def run(self) -> None:
        self.patience_s = TIMEOUT_S
        while not self.is_stopping:
            try:
                for partition in range(self._partitions):
                    leader = await self.leader_of(self._topic, partition)
                    if leader is not None:
                        for _ in range(10):
                            self.start(self._look(leader.topic_id, partition))
                            await self.pause(self._every_s)
            except Failed:
                pass
            await self.pause(self._every_s)

    async def _look(self, topic_id: UUID, partition: int) -> None:
        try:
            await self.committed(topic_id, partition)
        except Failed:
            self._coordinator = None
