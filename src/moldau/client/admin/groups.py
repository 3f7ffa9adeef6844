"""The part of an `Admin` that is about consumer groups."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError
from confluent_kafka import TopicPartition as Position

from moldau.client.admin.infos import GroupDescription, GroupInfo, MemberInfo, PartitionLag
from moldau.client.consumer.message_times import MessageTimes
from moldau.client.errors import ClientError
from moldau.topic_partition import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_GROUPS_AT_ONCE = 500


class GroupAdmin:
    """Groups, their offsets and how far they are behind."""

    _client: AdminClient
    _times: MessageTimes

    def groups(self) -> list[GroupInfo]:
        """Return all groups, with and without members."""
        found = self._answer("groups", self._client.list_consumer_groups())
        if found.errors:
            raise self._failure("groups", found.errors[0])
        return [
            GroupInfo(
                group.group_id,
                group.state.name.lower(),
                group.is_simple_consumer_group,
                _kind(group),
            )
            for group in sorted(found.valid, key=lambda group: str(group.group_id))
        ]

    def group(self, name: str) -> GroupDescription:
        """Return who is in a group, and who reads what."""
        (found,) = self.describe_groups([name])
        return found

    def describe_groups(self, names: Sequence[str]) -> list[GroupDescription]:
        """Return the same for many groups, in the order in which they are named."""
        return [
            _description(name, self._answer(f"group {name}", answer))
            for name, answer in self._described(names)
        ]

    def member_counts(self, names: Sequence[str]) -> dict[str, int | None]:
        """Return how many members each group has.

        None for a group whose members tell each other something else than consumers do, such as
        those of Kafka Connect: librdkafka does not describe it, and names no reason.
        """
        counts: dict[str, int | None] = {}
        for name, answer in self._described(names):
            try:
                counts[name] = len(self._answer(f"group {name}", answer).members)
            except ClientError as problem:
                if problem.code != KafkaError._DESTROY:
                    raise
                counts[name] = None
        return counts

    def _described(
        self, names: Sequence[str]
    ) -> Iterator[tuple[str, concurrent.futures.Future[Any]]]:
        for first in range(0, len(names), _GROUPS_AT_ONCE):
            some = list(names[first : first + _GROUPS_AT_ONCE])
            answers = self._client.describe_consumer_groups(some)
            yield from ((name, answers[name]) for name in some)

    def delete_group(self, name: str) -> None:
        """Delete a group without members, and what it has committed."""
        self._one(f"group {name}", self._client.delete_consumer_groups([name]))

    def group_offsets(self, name: str) -> dict[TopicPartition, int]:
        """Return what a group has committed."""
        asked = self._client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])
        found = self._one(f"group {name}", asked)
        return {
            (at.topic, at.partition): at.offset
            for at in sorted(found.topic_partitions or [])
            if at.offset >= 0
        }

    def set_group_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let a group without members go on elsewhere."""
        places = [Position(*place, offset) for place, offset in offsets.items()]
        asked = self._client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name, places)]
        )
        for at in self._one(f"group {name}", asked).topic_partitions or []:
            if at.error is not None:
                raise self._failure(f"group {name}, {at.topic} [{at.partition}]", at.error)

    def lag(self, name: str, *, seconds: bool = False) -> list[PartitionLag]:
        """Return how far a group is behind, in every partition of the topics that it reads.

        Those are the topics of which it has committed something, or of which a member reads a
        partition. With `seconds`, the first message that is not committed is read from each
        partition that has a lag, to see its age.
        """
        committed = self.group_offsets(name)
        readers = {
            place: member.member_id
            for member in self.group(name).members
            for place in member.partitions
        }
        bounds = self._bounds({topic for topic, _ in (*committed, *readers)})
        following = {
            place: min(max(at, bounds[place][0]), bounds[place][1])
            for place, at in committed.items()
            if place in bounds
        }
        behind = {place: at for place, at in following.items() if at < bounds[place][1]}
        ages = dict.fromkeys(following.keys() - behind.keys(), 0.0)
        if seconds:
            times = self._times.at(behind)
            now_ms = time.time() * 1000
            for place, written_ms in times.items():
                ages[place] = round(max(0.0, now_ms - written_ms) / 1000, 3)
        return [
            PartitionLag(
                *place,
                committed=committed.get(place),
                start=start,
                end=end,
                lag=end - following[place] if place in following else None,
                seconds=ages.get(place) if seconds else None,
                member=readers.get(place),
            )
            for place, (start, end) in sorted(bounds.items())
        ]

    def _bounds(self, topics: Collection[str]) -> dict[TopicPartition, tuple[int, int]]:
        raise NotImplementedError

    def _one(self, what: str, answers: Mapping[Any, concurrent.futures.Future[Any]]) -> Any:
        raise NotImplementedError

    def _answer(self, what: str, answer: concurrent.futures.Future[Any]) -> Any:
        raise NotImplementedError

    def _failure(self, what: str, problem: Any) -> Exception:
        raise NotImplementedError


def _description(name: str, found: Any) -> GroupDescription:
    members = (
        MemberInfo(
            member.member_id,
            member.client_id,
            # Java's brokers write an address as Java does, with a slash.
            member.host.removeprefix("/"),
            member.group_instance_id,
            tuple(
                sorted(
                    (at.topic, at.partition)
                    for at in (member.assignment.topic_partitions if member.assignment else ())
                )
            ),
        )
        for member in found.members
    )
    return GroupDescription(
        name,
        found.state.name.lower(),
        found.partition_assignor or "",
        found.coordinator.id if found.coordinator else -1,
        tuple(sorted(members, key=lambda member: (member.client_id, member.member_id))),
        _kind(found),
    )


def _kind(found: Any) -> str:
    """Return the kind of a group; brokers that tell of none know only one."""
    name = str(found.type.name).lower()
    return "classic" if name == "unknown" else name
