"""Group requests in any version, over a bare connection."""

from __future__ import annotations

from typing import Any

from moldau.wire.apis import VERSIONS, Api
from tests.broker.asking import Asker, fresh_name

SESSION_MS = 60_000


class Groups:
    """Asks for what members and operators do; the newest version unless one is given."""

    def __init__(self, asker: Asker) -> None:
        self.asker = asker

    def find(self, group: str, version: int | None = None, key_type: int = 0) -> Any:
        """Where the group is coordinated, whichever form the version has."""
        answer = self.asker.ask(
            Api.FIND_COORDINATOR,
            version,
            **keys(Api.FIND_COORDINATOR, version, group, key_type),
        )
        return answer.coordinators[0] if hasattr(answer, "coordinators") else answer

    def join(
        self,
        group: str,
        member: str = "",
        version: int | None = None,
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b""),),
        session_ms: int = SESSION_MS,
        protocol_type: str = "consumer",
    ) -> Any:
        values = {
            "group_id": group,
            "session_timeout": session_ms,
            "rebalance_timeout": 30_000,
            "member_id": member,
            "group_instance_id": instance,
            "protocol_type": protocol_type,
            "protocols": [{"name": name, "metadata": data} for name, data in protocols],
        }
        return self.asker.ask(Api.JOIN_GROUP, version, **values)

    def enter(self, group: str, version: int | None = None, **more: Any) -> Any:
        """Joins, with the id that is given out first where the version has that."""
        joined = self.join(group, "", version, **more)
        if joined.error_code == 79:
            joined = self.join(group, joined.member_id, version, **more)
        assert joined.error_code == 0, joined
        return joined

    def sync(
        self,
        group: str,
        member: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        version: int | None = None,
        **more: Any,
    ) -> Any:
        given = [
            {"member_id": name, "assignment": data} for name, data in (assignments or {}).items()
        ]
        return self.asker.ask(
            Api.SYNC_GROUP,
            version,
            group_id=group,
            generation_id=generation,
            member_id=member,
            assignments=given,
            **{"protocol_type": "consumer", "protocol_name": "range"} | more,
        )

    def stable(self, group: str, version: int | None = None, **more: Any) -> Any:
        """A group of one member, which has its assignment; the answer to its JoinGroup."""
        joined = self.enter(group, **more)
        member = joined.member_id
        synced = self.sync(
            group,
            member,
            joined.generation_id,
            {member: b"mine"},
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
        )
        assert synced.error_code == 0
        assert synced.assignment == b"mine"
        return joined

    def heartbeat(
        self, group: str, member: str, generation: int, version: int | None = None, **more: Any
    ) -> int:
        answer = self.asker.ask(
            Api.HEARTBEAT,
            version,
            group_id=group,
            generation_id=generation,
            member_id=member,
            **more,
        )
        return int(answer.error_code)

    def leave(self, group: str, *members: str, version: int | None = None) -> list[int]:
        version = VERSIONS[Api.LEAVE_GROUP].last if version is None else version
        values: dict[str, Any] = {"member_id": members[0]}
        if version >= 3:
            values = {"members": [{"member_id": member} for member in members]}
        answer = self.asker.ask(Api.LEAVE_GROUP, version, group_id=group, **values)
        if version < 3 or answer.error_code:
            return [int(answer.error_code)]
        return [int(member.error_code) for member in answer.members]

    def commit(
        self,
        group: str,
        offsets: dict[tuple[str, int], int],
        version: int | None = 9,
        *,
        member: str = "",
        generation: int = -1,
        metadata: str | None = "",
        ids: dict[str, Any] | None = None,
        **more: Any,
    ) -> dict[tuple[str, int], int]:
        """The error per partition; topics go by `ids` where these are given."""
        topics = []
        for name in dict.fromkeys(topic for topic, _ in offsets):
            partitions = [
                {
                    "partition_index": index,
                    "committed_offset": offset,
                    "committed_leader_epoch": 0,
                    "committed_metadata": metadata,
                }
                for (topic, index), offset in offsets.items()
                if topic == name
            ]
            topic_id = {} if ids is None else {"topic_id": ids[name]}
            topics.append({"name": name, "partitions": partitions, **topic_id})
        answer = self.asker.ask(
            Api.OFFSET_COMMIT,
            version,
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=topics,
            **{"retention_time": -1, **more},
        )
        names = {} if ids is None else {topic_id: name for name, topic_id in ids.items()}
        return {
            (names[topic.topic_id] if names else topic.name, each.partition_index): int(
                each.error_code
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    def committed(self, group: str, topic: str, *partitions: int) -> list[int]:
        """What the group has committed, by the newest version that has names."""
        answer = self.asker.ask(
            Api.OFFSET_FETCH,
            9,
            groups=[
                {
                    "group_id": group,
                    "topics": [{"name": topic, "partition_indexes": list(partitions)}],
                }
            ],
        )
        assert answer.groups[0].error_code == 0, answer
        return [int(each.committed_offset) for each in answer.groups[0].topics[0].partitions]

    def describe(self, group: str, version: int | None = None) -> Any:
        answer = self.asker.ask(Api.DESCRIBE_GROUPS, version, groups=[group])
        return answer.groups[0]


def keys(api: Api, version: int | None, group: str, key_type: int) -> dict[str, Any]:
    version = VERSIONS[api].last if version is None else version
    if version < 4:
        return {"key": group, "key_type": key_type}
    return {"coordinator_keys": [group], "key_type": key_type}


def fresh_group(groups: Groups) -> str:
    """A group that no other test has, on a broker that is ready for groups."""
    name = fresh_name("group")
    groups.find(name)
    return name
