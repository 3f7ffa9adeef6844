"""What a group has committed, and how far it is behind, in messages and in seconds."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moldau.cli.clients import REQUEST_TIMEOUT_S, cluster_metadata, connect_consumer, failure_of
from moldau.cli.output import Failure

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, OffsetSpec

Place = tuple[str, int]

POLL_S = 0.1
TIMESTAMPS_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Member:
    id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group. Without a commit, nothing is known about how far behind it is."""

    place: Place
    committed: int | None
    start: int
    end: int
    seconds: float | None
    member_id: str | None

    @property
    def lag(self) -> int | None:
        """Messages that are kept and not committed yet."""
        return None if self.committed is None else max(0, self.end - self._next)

    @property
    def _next(self) -> int:
        return max(self.committed or 0, self.start)


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group at one moment."""

    group: str
    state: str
    assignor: str
    members: tuple[Member, ...]
    partitions: tuple[PartitionLag, ...]

    @property
    def lag(self) -> int:
        return sum(partition.lag or 0 for partition in self.partitions)

    @property
    def seconds(self) -> float:
        return max((partition.seconds or 0.0 for partition in self.partitions), default=0.0)


class GroupWatch:
    """Looks at groups as often as asked, over the same connections.

    Seconds behind are the age, by its timestamp, of the first message that is not committed; zero
    when there is none. So they grow while nobody reads, and are about the delay of what is read
    next.
    """

    def __init__(self, admin: AdminClient, bootstrap: str) -> None:
        self._admin = admin
        self._bootstrap = bootstrap
        self._consumer: Consumer | None = None
        self._timestamps: dict[tuple[Place, int], int] = {}

    def look(self, group: str) -> GroupView:
        described = describe_group(self._admin, group)
        members = tuple(map(_member, described.members))
        owners = {place: member.id for member in members for place in member.partitions}
        committed = committed_offsets(self._admin, group)
        if not members and not committed and state_of(described) == "dead":
            raise Failure(f"there is no group {group}", "see `moldau groups list`")
        # All partitions of what the group reads: one without a commit is worth seeing, too.
        bounds = offset_bounds(self._admin, {topic for topic, _ in (*owners, *committed)})
        nexts = {
            place: max(offset, bounds[place][0])
            for place, offset in committed.items()
            if place in bounds and offset < bounds[place][1]
        }
        timestamps = self._timestamps_at(nexts)
        now_ms = time.time() * 1000
        partitions = []
        for place, (start, end) in sorted(bounds.items()):
            seconds: float | None = 0.0
            if place not in committed:
                seconds = None
            elif place in nexts:
                stamp = timestamps.get(place)
                seconds = None if stamp is None else round(max(0.0, now_ms - stamp) / 1000, 3)
            partitions.append(
                PartitionLag(place, committed.get(place), start, end, seconds, owners.get(place))
            )
        assignor = described.partition_assignor or ""
        return GroupView(group, state_of(described), assignor, members, tuple(partitions))

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def _timestamps_at(self, offsets: Mapping[Place, int]) -> dict[Place, int]:
        """The timestamp of the first message at or after each offset; a slow one is left out."""
        known = self._timestamps
        self._timestamps = {at: known[at] for at in offsets.items() if at in known}
        unknown = {
            place: offset for place, offset in offsets.items() if (place, offset) not in known
        }
        for place, stamp in self._read_timestamps(unknown).items():
            self._timestamps[place, unknown[place]] = stamp
        return {place: stamp for (place, _), stamp in self._timestamps.items()}

    def _read_timestamps(self, offsets: Mapping[Place, int]) -> dict[Place, int]:
        from confluent_kafka import TopicPartition

        if not offsets:
            return {}
        if self._consumer is None:
            # One message a partition is all that is wanted.
            self._consumer = connect_consumer(
                self._bootstrap, queued_min_messages=1, fetch_message_max_bytes=16384
            )
        consumer = self._consumer
        consumer.assign([TopicPartition(*place, offset) for place, offset in offsets.items()])
        found: dict[Place, int] = {}
        deadline = time.monotonic() + TIMESTAMPS_WITHIN_S
        while len(found) < len(offsets) and time.monotonic() < deadline:
            for message in consumer.consume(500, POLL_S):
                topic, partition = message.topic(), message.partition()
                if message.error() is not None or topic is None or partition is None:
                    continue
                if (topic, partition) not in found:
                    found[topic, partition] = message.timestamp()[1]
                    consumer.pause([TopicPartition(topic, partition)])
        consumer.unassign()
        return found


def state_of(described: ConsumerGroupDescription) -> str:
    """A group's state in small letters: stable, empty, dead, preparing rebalance."""
    return str(described.state.name).lower().replace("_", " ")


def describe_group(admin: AdminClient, group: str) -> ConsumerGroupDescription:
    futures = admin.describe_consumer_groups([group], request_timeout=REQUEST_TIMEOUT_S)
    described: ConsumerGroupDescription = answer(futures[group], group)
    return described


def committed_offsets(admin: AdminClient, group: str) -> dict[Place, int]:
    """Everything that the group has committed."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = [ConsumerGroupTopicPartitions(group)]
    futures = admin.list_consumer_group_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
    found = answer(futures[group], group).topic_partitions
    return {(at.topic, at.partition): at.offset for at in found if at.offset >= 0}


def offset_bounds(admin: AdminClient, topics: Collection[str]) -> dict[Place, tuple[int, int]]:
    """(start, end) of each partition of these topics; topics that are gone are left out."""
    from confluent_kafka.admin import OffsetSpec

    known = cluster_metadata(admin).topics
    places = [
        (topic, partition)
        for topic in topics
        if topic in known
        for partition in known[topic].partitions
    ]
    starts = look_up(admin, dict.fromkeys(places, OffsetSpec.earliest()))
    ends = look_up(admin, dict.fromkeys(places, OffsetSpec.latest()))
    return {place: (starts[place], ends[place]) for place in places}


def look_up(admin: AdminClient, asked: Mapping[Place, OffsetSpec]) -> dict[Place, int]:
    from confluent_kafka import TopicPartition

    if not asked:
        return {}
    specs = {TopicPartition(*place): spec for place, spec in asked.items()}
    answers = admin.list_offsets(specs, request_timeout=REQUEST_TIMEOUT_S)
    return {(at.topic, at.partition): answer(f).offset for at, f in answers.items()}


def answer(future: Future[Any], group: str = "") -> Any:
    """The broker's answer; a refusal is a Failure that names the group."""
    from confluent_kafka import KafkaException

    try:
        return future.result()
    except KafkaException as problem:
        reason = failure_of(problem.args[0])
        raise Failure(f"group {group}: {reason.message}" if group else reason.message) from None


def _member(described: Any) -> Member:
    places = described.assignment.topic_partitions if described.assignment else ()
    return Member(
        described.member_id,
        described.client_id,
        str(described.host).removeprefix("/"),
        described.group_instance_id,
        tuple(sorted((at.topic, at.partition) for at in places)),
    )
