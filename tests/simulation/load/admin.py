"""Administrators: they create and delete topics, move partitions, elect and configure."""

from __future__ import annotations

from typing import Any

from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.simulation.checks.history import History
from tests.simulation.core.world import World
from tests.simulation.load.talker import BACKOFF_S, Failed, Talker

_TIMEOUT_MS = 5000


class Admin(Talker):
    """Does one kind of thing now and then."""

    def __init__(self, world: World, history: History, name: str, every_s: float) -> None:
        super().__init__(world, name)
        self._history = history
        self._every_s = every_s
        self.is_done = False

    async def _try(self, api: Api, **values: Any) -> Any:
        """An answer, or None; nobody knows then what became of it."""
        try:
            answer = await self.ask(self.any_broker(), api, **values)
        except Failed:
            answer = None
        self._history.count(f"{api.name.lower()}{'' if answer is not None else ' unanswered'}")
        return answer

    async def create(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        """Make a topic, whatever it takes."""
        wanted = {
            "name": topic,
            "num_partitions": partitions,
            "replication_factor": 3,
            "assignments": [],
            "configs": [{"name": name, "value": value} for name, value in configs.items()],
        }
        while True:
            answer = await self._try(
                Api.CREATE_TOPICS, topics=[wanted], timeout=_TIMEOUT_MS, validate_only=False
            )
            if answer is not None:
                code = answer.topics[0].error_code
                if code in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
                    return
            await self.pause(BACKOFF_S)

    async def recreate(self, topic: str, configs: dict[str, str]) -> None:
        """Delete a topic and make it anew, again and again; in the end it is there."""
        while not self.is_stopping:
            await self.create(topic, 1, configs)
            await self.pause(self._every_s)
            if not self.is_stopping:
                wanted = [{"name": topic, "topic_id": None}]
                await self._try(Api.DELETE_TOPICS, topics=wanted, timeout=_TIMEOUT_MS)
        await self.create(topic, 1, configs)
        self.is_done = True

    async def reassign(self, topic: str, partitions: int) -> None:
        """Move partitions to two or three brokers in any order; in the end all have all."""
        brokers = list(self.world.nodes)
        while not self.is_stopping:
            await self.pause(self._every_s)
            count = self.dice.choice([2, 2, 3, 3, 3])
            await self._move(
                topic, self.dice.randrange(partitions), self.dice.sample(brokers, count)
            )
        for partition in range(partitions):
            while await self._move(topic, partition, brokers) is None:
                await self.pause(BACKOFF_S)
        self.is_done = True

    async def _move(self, topic: str, partition: int, replicas: list[int]) -> Any:
        moved = {"partition_index": partition, "replicas": replicas}
        answer = await self._try(
            Api.ALTER_PARTITION_REASSIGNMENTS,
            timeout=_TIMEOUT_MS,
            allow_replication_factor_change=True,
            topics=[{"name": topic, "partitions": [moved]}],
        )
        if answer is None or answer.error_code != Error.NONE:
            return None
        code = answer.responses[0].partitions[0].error_code
        return code if code == Error.NONE else None

    async def elect(self, topic: str, partitions: int) -> None:
        """Ask for the preferred leaders."""
        while not self.is_stopping:
            await self.pause(self._every_s)
            wanted = [{"topic": topic, "partitions": list(range(partitions))}]
            await self._try(
                Api.ELECT_LEADERS, election_type=0, topic_partitions=wanted, timeout=_TIMEOUT_MS
            )
        self.is_done = True

    async def configure(self, topic: str) -> None:
        """Change settings of the topic that matter to replication and to files."""
        choices = {
            "min.insync.replicas": ["1", "2"],
            "flush.messages": ["1", "9223372036854775807"],
            "segment.bytes": ["4096", "1073741824"],
        }
        while not self.is_stopping:
            await self.pause(self._every_s)
            name = self.dice.choice(list(choices))
            config = {
                "name": name,
                "config_operation": 0,
                "value": self.dice.choice(choices[name]),
            }
            resource = {"resource_type": 2, "resource_name": topic, "configs": [config]}
            await self._try(
                Api.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False
            )
        self.is_done = True

    async def configure_group(self, group: str, configs: dict[str, str]) -> None:
        """Set what a group is to have of its own, until that is done."""
        wanted = [
            {"name": name, "config_operation": 0, "value": value} for name, value in configs.items()
        ]
        resource = {"resource_type": 32, "resource_name": group, "configs": wanted}
        while True:
            answer = await self._try(
                Api.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False
            )
            if answer is not None and answer.responses[0].error_code == Error.NONE:
                break
            await self.pause(BACKOFF_S)
        self.is_done = True
