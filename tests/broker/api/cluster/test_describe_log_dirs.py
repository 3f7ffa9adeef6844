from __future__ import annotations

import pytest

from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.asking import Asker, fresh_name, versions


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_LOG_DIRS))
def test_the_size_of_partitions_is_told_in_every_version(
    moldau_session_broker: Broker, asker: Asker, version: int
) -> None:
    from confluent_kafka import Producer

    name = fresh_name()
    asker.create(name, 3)
    producer = Producer({"bootstrap.servers": moldau_session_broker.bootstrap})
    producer.produce(name, b"x" * 10_000, partition=1)
    assert producer.flush(60) == 0
    asked = [{"topic": name, "partitions": [0, 1, 9]}, {"topic": fresh_name(), "partitions": [0]}]
    answer = asker.ask(Api.DESCRIBE_LOG_DIRS, version, topics=asked)
    [folder] = answer.results
    assert folder.error_code == 0
    assert folder.log_dir == str(moldau_session_broker.data_dir)
    [topic] = folder.topics
    assert topic.name == name
    sizes = {each.partition_index: each.partition_size for each in topic.partitions}
    assert sizes.keys() == {0, 1}
    assert sizes[0] == 0
    assert 10_000 < sizes[1] < 11_000
    assert all(each.offset_lag == 0 and not each.is_future_key for each in topic.partitions)
    if version >= 4:
        assert 0 < folder.usable_bytes < folder.total_bytes


def test_everything_is_described_when_nothing_is_named(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name, 2)
    [folder] = asker.ask(Api.DESCRIBE_LOG_DIRS, topics=None).results
    topics = {topic.name: topic.partitions for topic in folder.topics}
    assert [each.partition_index for each in topics[name]] == [0, 1]
