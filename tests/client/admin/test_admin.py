"""Topics, partitions and settings, against a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from moldau import Admin, ClientError, MessageSet, Producer


def test_topics_come_and_go(bootstrap: str, topic: str) -> None:
    name = f"{topic}-made"
    with Admin(bootstrap) as admin:
        assert admin.create_topic(name, 3, retention_ms=1000)
        assert not admin.create_topic(name, 3, if_not_exists=True)
        with pytest.raises(ClientError, match="TOPIC_ALREADY_EXISTS"):
            admin.create_topic(name)
        assert [part.index for part in admin.topics()[name].partitions] == [0, 1, 2]
        assert admin.configs(name)["retention.ms"] == "1000"
        admin.delete_topic(name)
        assert name not in admin.topics()
        with pytest.raises(ClientError, match="does not exist"):
            admin.topic(name)


def test_settings_are_changed_one_by_one(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap) as admin:
        default = admin.configs(topic)["retention.ms"]
        admin.set_configs({"retention_ms": 5000, "cleanup.policy": ["compact", "delete"]}, topic)
        assert admin.configs(topic)["retention.ms"] == "5000"
        assert admin.configs(topic)["cleanup.policy"] == "compact,delete"
        admin.set_configs({"retention.ms": None}, topic)
        assert admin.configs(topic)["retention.ms"] == default
        assert admin.configs(broker=0)
        with pytest.raises(ClientError, match="INVALID_CONFIG"):
            admin.set_configs({"retention.ms": "long"}, topic)
        with pytest.raises(ValueError, match="give either"):
            admin.configs()


def test_offsets_are_told_and_records_deleted(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    with Producer(bootstrap) as producer:
        for n in range(10):
            producer.send(topic, b"x", partition=0, timestamp=1000 * (n + 1))
    with Admin(bootstrap) as admin:
        assert admin.offsets(topic) == {0: (0, 10), 1: (0, 0)}
        assert admin.offsets_at(topic, 4500) == {0: 4, 1: None}
        assert admin.delete_records(topic, {0: 3}) == {0: 3}
        assert admin.offsets(topic)[0] == (3, 10)
        admin.add_partitions(topic, 4)
        assert len(admin.topic(topic).partitions) == 4


def test_a_cluster_that_does_not_answer_is_an_error() -> None:
    with Admin("127.0.0.1:1", timeout=0.3) as admin, pytest.raises(ClientError, match="topics"):
        admin.topics()


def test_sets_are_made_of_messages_or_of_one_iterable() -> None:
    assert len(MessageSet(b"a", "b", {"c": 1})) == 3
    assert list(MessageSet([b"a", b"b"])) == [b"a", b"b"]
    assert list(MessageSet(b"%d" % n for n in range(2))) == [b"0", b"1"]
    assert list(MessageSet({"c": 1})) == [{"c": 1}]
    assert list(MessageSet(b"ab")) == [b"ab"]
