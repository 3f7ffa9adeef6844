"""The part of an `Admin` that is about consumer groups."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import OffsetSpec

from moldau.client.infos import GroupDescription, GroupInfo, MemberInfo, PartitionLag
from moldau.client.positions import Place

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


class GroupAdmin:
    """Groups, their offsets and how far they are behind."""

    _client: AdminClient
    _timeout: float
    _settings: dict[str, Any]

    def groups(self) -> list[GroupInfo]:
        """All groups, with and without members."""
        found = self._answer("groups", self._client.list_consumer_groups())
        if not found.valid and found.errors:
            raise self._failure("groups", found.errors[0])
        return [
            GroupInfo(group.group_id, group.state.name.lower(), group.is_simple_consumer_group)
            for group in sorted(found.valid, key=lambda group: str(group.group_id))
        ]

    def group(self, name: str) -> GroupDescription:
        """Who is in a group, and who reads what."""
        found = self._one(f"group {name}", self._client.describe_consumer_groups([name]))
        return GroupDescription(
            name,
            found.state.name.lower(),
            found.partition_assignor or "",
            found.coordinator.id if found.coordinator else -1,
            tuple(
                MemberInfo(
                    member.member_id,
                    member.client_id,
                    member.host,
                    member.group_instance_id,
                    tuple(
                        sorted(
                            (at.topic, at.partition)
                            for at in (
                                member.assignment.topic_partitions if member.assignment else ()
                            )
                        )
                    ),
                )
                for member in found.members
            ),
        )

    def delete_group(self, name: str) -> None:
        """Delete a group without members, and what it has committed."""
        self._one(f"group {name}", self._client.delete_consumer_groups([name]))

    def group_offsets(self, name: str) -> dict[Place, int]:
        """What a group has committed."""
        asked = self._client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])
        found = self._one(f"group {name}", asked)
        return {
            (at.topic, at.partition): at.offset
            for at in sorted(found.topic_partitions or [])
            if at.offset >= 0
        }

    def set_group_offsets(self, name: str, offsets: Mapping[Place, int]) -> None:
        """Let a group without members go on elsewhere."""
        places = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        asked = self._client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name, places)]
        )
        for at in self._one(f"group {name}", asked).topic_partitions or []:
            if at.error is not None:
                raise self._failure(f"group {name}, {at.topic} [{at.partition}]", at.error)

    def lag(self, name: str, *, seconds: bool = False) -> list[PartitionLag]:
        """How far a group is behind, in every partition that it has committed or reads.

        With `seconds`, a message is read from each partition that has a lag, to see its age.
        """
        committed = self.group_offsets(name)
        readers = {
            place: member.member_id
            for member in self.group(name).members
            for place in member.partitions
        }
        places = sorted(committed.keys() | readers.keys())
        first = self._offsets(places, OffsetSpec.earliest())
        end = self._offsets(places, OffsetSpec.latest())
        following = {
            place: min(max(committed.get(place, 0), first[place]), end[place]) for place in places
        }
        behind = {place: at for place, at in following.items() if at < end[place]}
        ages = self._ages(behind, end) if seconds else {}
        return [
            PartitionLag(
                *place,
                committed=committed.get(place),
                end=end[place],
                lag=end[place] - following[place],
                seconds=(ages.get(place) if place in behind else 0.0) if seconds else None,
                member=readers.get(place),
            )
            for place in places
        ]

    def _ages(self, following: dict[Place, int], end: dict[Place, int]) -> dict[Place, float]:
        """How much older the next message to read is than the newest one."""
        next_times = self._times(following)
        last_times = self._times({place: end[place] - 1 for place in following})
        return {
            place: max(0.0, (last_times[place] - next_times[place]) / 1000)
            for place in following
            if place in next_times and place in last_times
        }

    def _times(self, wanted: dict[Place, int]) -> dict[Place, int]:
        """The timestamps of the first messages from these offsets on, in milliseconds."""
        if not wanted:
            return {}
        reader = confluent_kafka.Consumer(
            {
                **self._settings,
                "group.id": "moldau-no-group",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                # One message of each partition is wanted.
                "queued.min.messages": 1,
                "fetch.message.max.bytes": 16384,
            }
        )
        found: dict[Place, int] = {}
        deadline = time.monotonic() + self._timeout
        try:
            reader.assign([TopicPartition(*place, at) for place, at in wanted.items()])
            while len(found) < len(wanted) and time.monotonic() < deadline:
                message = reader.poll(0.1)
                if message is not None and message.error() is None:
                    place = (message.topic() or "", message.partition() or 0)
                    if place not in found:
                        found[place] = message.timestamp()[1]
                        reader.incremental_unassign([TopicPartition(*place)])
        finally:
            reader.close()
        return found

    def _offsets(self, places: list[Place], spec: OffsetSpec) -> dict[Place, int]:
        raise NotImplementedError

    def _one(self, what: str, answers: Mapping[Any, concurrent.futures.Future[Any]]) -> Any:
        raise NotImplementedError

    def _answer(self, what: str, answer: concurrent.futures.Future[Any]) -> Any:
        raise NotImplementedError

    def _failure(self, what: str, problem: Any) -> Exception:
        raise NotImplementedError
