"""Topics, partitions, settings and groups of a cluster."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

import confluent_kafka
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from moldau.client.admin.groups import GroupAdmin
from moldau.client.admin.infos import PartitionInfo, TopicInfo
from moldau.client.connection import kafka_name, librdkafka_settings
from moldau.client.consumer.message_times import MessageTimes
from moldau.client.errors import ClientError, words_of
from moldau.cluster.state.internal_topics import is_internal_name
from moldau.topic_partition import TopicPartition

TIMEOUT_S = 10.0


class Admin(GroupAdmin):
    """Asks and tells a cluster; address and settings are given as for a `Producer`.

    Every call waits for the answer, `timeout` seconds at most, and raises `ClientError` with
    Kafka's error code where the cluster refuses.
    """

    def __init__(
        self, bootstrap: str | None = None, *, timeout: float = TIMEOUT_S, **settings: Any
    ) -> None:
        chosen = librdkafka_settings(bootstrap, settings)
        self._client = AdminClient(chosen)
        self._times = MessageTimes(chosen)
        self._timeout = timeout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what `lag` has read with; the next `lag` would connect again."""
        self._times.close()

    def topics(self, internal: bool = False) -> dict[str, TopicInfo]:
        """Return all topics by name; the brokers' own ones only if asked for."""
        try:
            found = self._client.list_topics(timeout=self._timeout).topics
        except confluent_kafka.KafkaException as problem:
            raise self._failure("topics", problem) from None
        return {
            name: TopicInfo(
                name,
                tuple(
                    PartitionInfo(index, part.leader, tuple(part.replicas), tuple(part.isrs))
                    for index, part in sorted(topic.partitions.items())
                ),
            )
            for name, topic in sorted(found.items())
            if internal or not is_internal_name(name)
        }

    def topic(self, name: str) -> TopicInfo:
        """Return a topic; `ClientError` if there is none of that name."""
        found = self.topics(internal=True).get(name)
        if found is None:
            error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
            raise ClientError(f"topic {name} does not exist", error)
        return found

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        *,
        replication_factor: int = -1,
        if_not_exists: bool = False,
        **configs: Any,
    ) -> bool:
        """Create a topic; settings have underscores for dots: `retention_ms=1000`.

        True if it was created, False if it was there already and that was fine.
        """
        topic = NewTopic(name, partitions, replication_factor, config=_texts(configs))
        try:
            self._one(f"topic {name}", self._client.create_topics([topic]))
        except ClientError as problem:
            if if_not_exists and problem.code == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise
        return True

    def delete_topic(self, name: str) -> None:
        self._one(f"topic {name}", self._client.delete_topics([name]))

    def add_partitions(self, name: str, total: int) -> None:
        """Let a topic have this many partitions, which must be more than it has."""
        asked = self._client.create_partitions([NewPartitions(name, total)])
        self._one(f"topic {name}", asked)

    def configs(self, topic: str | None = None, *, broker: int | None = None) -> dict[str, str]:
        """Return the settings in force for a topic or a broker; sensitive ones are left out."""
        resource = _resource(topic, broker)
        found = self._one(resource.name, self._client.describe_configs([resource]))
        return {name: entry.value for name, entry in found.items() if entry.value is not None}

    def set_configs(
        self,
        configs: Mapping[str, Any],
        topic: str | None = None,
        *,
        broker: int | None = None,
    ) -> None:
        """Change some settings, and leave the others; None puts one back to its default."""
        resource = _resource(topic, broker)
        for name, value in configs.items():
            change = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            text = "" if value is None else _text(value)
            resource.add_incremental_config(
                ConfigEntry(kafka_name(name), text, incremental_operation=change)
            )
        self._one(resource.name, self._client.incremental_alter_configs([resource]))

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """For each partition, the first offset still kept and the one that comes next."""
        return {at[1]: bounds for at, bounds in self._bounds_of([self.topic(topic)]).items()}

    def end_offset(self, topic: str, partition: int) -> int:
        """Return the offset that comes next in a partition."""
        return self._offsets([(topic, partition)], OffsetSpec.latest())[topic, partition]

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int | None]:
        """For each partition, the offset of the first message of a time; None if there is none."""
        places = [(topic, info.index) for info in self.topic(topic).partitions]
        found = self._offsets(places, OffsetSpec.for_timestamp(timestamp_ms))
        return {at[1]: found[at] if found[at] >= 0 else None for at in places}

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete what lies before these offsets; returns where each partition begins now."""
        asked = [Position(topic, index, offset) for index, offset in before.items()]
        answers = self._client.delete_records(asked)
        return {
            at.partition: self._answer(f"{topic} [{at.partition}]", answer).low_watermark
            for at, answer in answers.items()
        }

    def _bounds(self, topics: Collection[str]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the same for several topics; those that are gone are left out."""
        known = self.topics(internal=True) if topics else {}
        return self._bounds_of(known[topic] for topic in topics if topic in known)

    def _bounds_of(self, topics: Iterable[TopicInfo]) -> dict[TopicPartition, tuple[int, int]]:
        places = [(topic.name, info.index) for topic in topics for info in topic.partitions]
        first = self._offsets(places, OffsetSpec.earliest())
        following = self._offsets(places, OffsetSpec.latest())
        return {at: (first[at], following[at]) for at in places}

    def _offsets(self, places: list[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        if not places:
            return {}
        answers = self._client.list_offsets({Position(*place): spec for place in places})
        return {
            (at.topic, at.partition): self._answer(f"{at.topic} [{at.partition}]", answer).offset
            for at, answer in answers.items()
        }

    def _one(self, what: str, answers: Mapping[Any, concurrent.futures.Future[Any]]) -> Any:
        (answer,) = answers.values()
        return self._answer(what, answer)

    def _answer(self, what: str, answer: concurrent.futures.Future[Any]) -> Any:
        try:
            return answer.result(self._timeout)
        except confluent_kafka.KafkaException as problem:
            raise self._failure(what, problem) from None
        except concurrent.futures.TimeoutError:
            raise ClientError(f"{what}: no answer within {self._timeout:g} s") from None

    def _failure(self, what: str, problem: Any) -> ClientError:
        error = problem.args[0] if isinstance(problem, Exception) else problem
        return ClientError(f"{what}: {words_of(error)}", error)


def _resource(topic: str | None, broker: int | None) -> ConfigResource:
    if (topic is None) == (broker is None):
        raise ValueError("give either a topic or a broker")
    if topic is not None:
        return ConfigResource(ResourceType.TOPIC, topic)
    return ConfigResource(ResourceType.BROKER, str(broker))


def _texts(configs: Mapping[str, Any]) -> dict[str, str]:
    return {kafka_name(name): _text(value) for name, value in configs.items()}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, list | tuple) else str(value)
