"""Thousands of partitions come and go a few at a time, and in the order in which it was decided."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from moldau.broker.partitions.replicas import LOGS_AT_A_TIME, LOGS_AT_ONCE
from moldau.broker.server import Broker as Server
from moldau.log.config import LogConfig
from moldau.log.errors import StorageError
from moldau.log.files.checkpoint import write_offsets
from moldau.log.store import checkpoints
from moldau.log.store.store import LogStore
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, inside, make_batch

MANY = 10 * LOGS_AT_ONCE


@pytest.fixture
def rounds(moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, int]]:
    """How many logs were made and moved away in each round of the loop."""
    counts: Counter[tuple[str, int]] = Counter()
    number = 0

    def tick() -> None:
        nonlocal number
        number += 1
        asyncio.get_running_loop().call_soon(tick)

    def counted(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any) -> Any:
            counts[name, number] += 1
            return work(*arguments)

        return count

    for name in ("create", "delete"):
        monkeypatch.setattr(LogStore, name, counted(name, getattr(LogStore, name)))
    inside(moldau_broker, lambda server: tick())
    return counts


def total(rounds: Counter[tuple[str, int]], name: str) -> int:
    return sum(count for (kind, _), count in rounds.items() if kind == name)


def test_a_topic_of_many_partitions_comes_and_goes_a_few_at_a_time(
    moldau_broker: Broker, rounds: Counter[tuple[str, int]]
) -> None:
    with Client(moldau_broker) as client:
        client.create("wide", partitions=MANY)
        # All are there when the answer comes.
        for index in (0, MANY // 2, MANY - 1):
            assert client.produce("wide", make_batch(b"x"), partition=index).error_code == 0
        answer = client.ask(Api.CREATE_PARTITIONS, topics=[grown("wide", 2 * MANY)])
        assert answer.results[0].error_code == 0
        assert client.produce("wide", make_batch(b"x"), partition=2 * MANY - 1).error_code == 0
        client.ask(Api.DELETE_TOPICS, topics=[{"name": "wide"}])
        until(lambda: total(rounds, "delete") == 2 * MANY, "the logs to go")
    assert total(rounds, "create") == 2 * MANY
    assert max(rounds.values()) <= LOGS_AT_ONCE
    assert sorted(rounds.values())[len(rounds) // 2] <= LOGS_AT_A_TIME


def test_many_topics_in_one_request_come_a_few_at_a_time(
    moldau_broker: Broker, rounds: Counter[tuple[str, int]]
) -> None:
    topics = [
        {"name": f"t{place}", "num_partitions": 1, "replication_factor": 1} for place in range(MANY)
    ]
    with Client(moldau_broker) as client:
        answer = client.ask(Api.CREATE_TOPICS, topics=topics)
        assert all(topic.error_code == 0 for topic in answer.topics)
        assert client.produce(f"t{MANY - 1}", make_batch(b"x")).error_code == 0
    assert max(rounds.values()) <= LOGS_AT_ONCE
    assert sorted(rounds.values())[len(rounds) // 2] <= LOGS_AT_A_TIME


def grown(topic: str, count: int) -> dict[str, Any]:
    return {"name": topic, "count": count, "assignments": None}


def test_a_topic_deleted_and_created_anew_at_once_is_the_new_one(moldau_broker: Broker) -> None:
    """All that is under way at the same time: opening, deleting, and opening again."""
    wanted = {"name": "t", "num_partitions": MANY, "replication_factor": 1}
    with Client(moldau_broker) as client:
        frames = []
        for _ in range(4):
            frames.append(client.frame(Api.CREATE_TOPICS, topics=[wanted]))
            frames.append(client.frame(Api.DELETE_TOPICS, topics=[{"name": "t"}]))
        frames.append(client.frame(Api.CREATE_TOPICS, topics=[wanted]))
        client.send_bytes(b"".join(frames))
        answers = [client.receive() for _ in frames]
        assert answers[-1].topics[0].error_code == 0
        until(lambda: inside(moldau_broker, holds_exactly_the_new), "the old ones to go")
        for index in (0, MANY - 1):
            assert client.produce("t", make_batch(b"x"), partition=index).base_offset == 0


@pytest.mark.moldau(
    {
        "log.flush.offset.checkpoint.interval.ms": 3_600_000,
        "replica.high.watermark.checkpoint.interval.ms": 3_600_000,
    }
)
def test_a_name_that_the_checkpoint_knows_is_forgotten_by_a_thread(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for all partitions, and not by the loop: it forces files to disk."""
    written: list[tuple[str, str]] = []
    write = write_offsets

    def watch(path: str, offsets: dict[Any, int]) -> None:
        # Other brokers of this process write theirs whenever they like.
        if Path(path).parent == moldau_broker.data_dir:
            written.append((threading.current_thread().name, os.path.basename(path)))
        write(path, offsets)

    with Client(moldau_broker) as client:
        client.create("t", partitions=MANY)
        assert client.produce("t", make_batch(b"x", b"y")).base_offset == 0
        inside(moldau_broker, lambda server: server.logs.checkpoint())
        monkeypatch.setattr(checkpoints, "write_offsets", watch)
        client.ask(Api.DELETE_TOPICS, topics=[{"name": "t"}])
        client.create("t", partitions=MANY)
        assert inside(moldau_broker, holds_exactly_the_new)
        assert client.produce("t", make_batch(b"z")).base_offset == 0
        assert client.values("t") == [b"z"]
    assert written
    assert "moldau-broker" not in {thread for thread, _ in written}
    assert [name for _, name in written].count(checkpoints.RECOVERY_POINTS) == 1


def holds_exactly_the_new(server: Server) -> bool:
    topic = server.state.topics["t"]
    keys = {("t", index) for index in range(MANY)}
    return (
        server.partitions.keys() == keys
        and server.logs.logs.keys() == keys
        and all(log.topic_id == topic.id for log in server.logs.logs.values())
        and all(partition.topic_id == topic.id for partition in server.partitions.values())
    )


def test_a_stop_while_partitions_are_being_opened_loses_none(moldau_broker: Broker) -> None:
    server = moldau_broker._server
    assert server is not None
    with Client(moldau_broker) as client:
        client.send(
            Api.CREATE_TOPICS,
            topics=[{"name": "t", "num_partitions": 10 * MANY, "replication_factor": 1}],
        )
        until(lambda: "t" in server.state.topics, "the topic")
        moldau_broker.stop()
    moldau_broker.start()
    assert inside(moldau_broker, lambda server: len(server.partitions)) == 10 * MANY


@pytest.mark.moldau({"max.broker.partitions": 100})
def test_a_broker_takes_no_more_partitions_than_it_may(moldau_broker: Broker) -> None:
    with Client(moldau_broker) as client:
        client.create("a", partitions=60)

        def refused(answer: Any) -> bool:
            assert "max.broker.partitions is 100" in (answer.error_message or "")
            return bool(answer.error_code == Error.POLICY_VIOLATION)

        wanted = [
            {"name": name, "num_partitions": count, "replication_factor": 1}
            for name, count in (("b", 41), ("c", 30), ("d", 11))
        ]
        b, c, d = client.ask(Api.CREATE_TOPICS, topics=wanted).topics
        assert refused(b)
        assert c.error_code == 0
        assert refused(d)
        (answer,) = client.ask(Api.CREATE_PARTITIONS, topics=[grown("a", 71)]).results
        assert refused(answer)
        client.ask(Api.DELETE_TOPICS, topics=[{"name": "c"}])
        (answer,) = client.ask(Api.CREATE_PARTITIONS, topics=[grown("a", 100)]).results
        assert answer.error_code == 0
        # Who reads must be able to commit, whatever else is there.
        client.ask(Api.FIND_COORDINATOR, key_type=0, coordinator_keys=["g"])
        until(lambda: client.topic_id("__consumer_offsets"), "the topic of the groups")
    moldau_broker.stop()
    moldau_broker.start()
    with Client(moldau_broker) as client:
        answer = client.ask(Api.CREATE_TOPICS, topics=[{**wanted[2], "num_partitions": 1}])
        assert refused(answer.topics[0])


@pytest.mark.parametrize("is_deleted", [True, False])
def test_the_log_of_an_earlier_topic_is_not_taken_for_that_of_a_new_one(
    moldau_broker: Broker, is_deleted: bool
) -> None:
    earlier = uuid4()

    def leave(server: Server) -> None:
        """A topic that was deleted while this broker started, before it listened to changes."""
        log = server.logs.create("again", 0, earlier, LogConfig())
        log.append(memoryview(bytearray(make_batch(b"old"))), 0, time.time_ns() // 1_000_000)
        log.commit()
        if is_deleted:
            server.state.deleted.add(earlier)

    inside(moldau_broker, leave)
    with Client(moldau_broker) as client:
        client.create("again")
        assert client.produce("again", make_batch(b"new")).base_offset == 0
        topic_id = client.topic_id("again")
    log = inside(moldau_broker, lambda server: server.partitions["again", 0].log)
    assert (log.topic_id, log.log_end) == (topic_id, 1)


def test_a_partition_that_the_disk_refused_is_served_when_it_does_no_more(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.broker.partitions.replicas.RETRY_S", 0.05)
    create, refusals = LogStore.create, [errno.EIO, errno.ENOSPC]

    def refusing(logs: LogStore, *place: Any) -> Any:
        if refusals:
            raise StorageError.of(logs.folder, OSError(refusals.pop(), "refused"))
        return create(logs, *place)

    monkeypatch.setattr(LogStore, "create", refusing)
    with Client(moldau_broker) as client:
        client.create("t")
        until(lambda: client.produce("t", make_batch(b"x")).error_code == 0, "it is served")
    assert not refusals
