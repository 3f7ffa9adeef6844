"""Members of a consumer group over a bare connection."""

from __future__ import annotations

from typing import Any

from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.broker.asking import Asker
from tests.broker.coordination.groups.asking import Groups


class Members:
    """Heartbeats to one group."""

    def __init__(self, asker: Asker, group: str) -> None:
        self.asker = asker
        self.group = group
        until(lambda: Groups(asker).find(group).error_code == 0)

    def beat(self, member: str, epoch: int, version: int | None = None, **more: Any) -> Any:
        values = {
            "group_id": self.group,
            "member_id": member,
            "member_epoch": epoch,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "topic_partitions": None,
        }
        return self.asker.ask(Api.CONSUMER_GROUP_HEARTBEAT, version, **(values | more))

    def join(self, member: str, *topics: str, version: int | None = None, **more: Any) -> Any:
        values: dict[str, Any] = {"rebalance_timeout": 30_000, "topic_partitions": []}
        values["subscribed_topic_names"] = topics
        return self.beat(member, 0, version, **(values | more))

    def describe(self, version: int | None = None, **more: Any) -> Any:
        more = {"include_authorized_operations": False} | more
        [group] = self.asker.ask(
            Api.CONSUMER_GROUP_DESCRIBE, version, group_ids=[self.group], **more
        ).groups
        return group
