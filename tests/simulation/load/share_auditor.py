"""The auditor of a share group: how far it has come in the end, and its dead letters."""

from __future__ import annotations

from moldau.broker.sharing.dead_letters import PREFIX, REJECTED
from moldau.records.batch import batches
from moldau.records.record import records_of
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.fetch.response import FetchedPartition
from tests.simulation.checks.deliveries import Letter
from tests.simulation.checks.history import History
from tests.simulation.core.world import World
from tests.simulation.load.consumer import Consumer
from tests.simulation.load.share_member import GROUP
from tests.simulation.load.talker import BACKOFF_S, Failed, Leader, Talker


class ShareAuditor(Talker):
    """Asks on until it is stopped; `starts` has the first offset of each partition that is not
    finished, by the last answer.
    """

    def __init__(self, world: World, name: str, topic: str, partitions: int) -> None:
        super().__init__(world, name)
        self._topic = topic
        self._partitions = partitions
        self.starts: dict[int, int] = {}

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                await self._look()
            except Failed:
                pass
            await self.pause(BACKOFF_S)

    async def _look(self) -> None:
        found = await self.ask(
            self.any_broker(), Api.FIND_COORDINATOR, key_type=0, coordinator_keys=[GROUP]
        )
        coordinator = found.coordinators[0]
        if coordinator.error_code != Error.NONE:
            return
        wanted = {"topic_name": self._topic, "partitions": list(range(self._partitions))}
        answer = await self.ask(
            int(coordinator.node_id),
            Api.DESCRIBE_SHARE_GROUP_OFFSETS,
            groups=[{"group_id": GROUP, "topics": [wanted]}],
        )
        for group in answer.groups:
            for topic in group.topics:
                for each in topic.partitions:
                    if each.error_code == Error.NONE:
                        self.starts[int(each.partition_index)] = int(each.start_offset)


class DeadLetterReader(Consumer):
    """Reads the dead letters of one partition through."""

    def __init__(self, world: World, history: History, name: str, topic: str) -> None:
        super().__init__(world, history, name, topic, 0, 0.1)
        self.letters: dict[tuple[int, int], list[Letter]] = {}

    def _take(self, leader: Leader, found: FetchedPartition) -> None:
        first = self.position
        super()._take(leader, found)
        data = bytes(found.records) if found.records is not None else b""
        for position, _ in batches(data):
            for record in records_of(data, position):
                if record.offset >= first:
                    said = {name: bytes(value or b"").decode() for name, value in record.headers}
                    place = int(said[PREFIX + "partition"]), int(said[PREFIX + "offset"])
                    is_rejected = said[PREFIX + "message"] == REJECTED
                    letter = Letter(int(said[PREFIX + "delivery.count"]), is_rejected)
                    self.letters.setdefault(place, []).append(letter)
