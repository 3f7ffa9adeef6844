"""A topic that a share group reads, for tests over the wire."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.api.sharing.member import Member
from tests.broker.wire_client import Client, make_batch


class Queue(NamedTuple):
    """A topic that a group reads."""

    client: Client
    broker: Broker
    topic: str
    group: str
    id: UUID

    def put(self, *values: bytes, partition: int = 0) -> None:
        answer = self.client.produce(self.topic, make_batch(*values), partition=partition)
        assert not answer.error_code

    def member(self, name: str = "m") -> Member:
        return Member(self.broker, self.group, self.id, name)

    def configure(self, **configs: str) -> None:
        texts = [
            {"name": key.replace("_", "."), "config_operation": 0, "value": value}
            for key, value in configs.items()
        ]
        resource = {"resource_type": 32, "resource_name": self.group, "configs": texts}
        answer = self.client.ask(
            Api.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False
        )
        assert not answer.responses[0].error_code, answer

    def start(self) -> int:
        """Return how far the group has come, as it is written down."""
        answer = self.client.ask(
            Api.READ_SHARE_GROUP_STATE_SUMMARY,
            group_id=self.group,
            topics=[{"topic_id": self.id, "partitions": [{"partition": 0, "leader_epoch": -1}]}],
        )
        start: int = answer.results[0].partitions[0].start_offset
        return start
