"""Produce for very many partitions: a few at a time, and others are served in between."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from moldau.broker.partitions.partition import Partition
from moldau.broker.server import Broker as Server
from moldau.broker.slices import Slices
from moldau.log.errors import StorageError
from moldau.log.writer import Writer
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import PATIENCE_S, Client, inside, make_batch, produce_values

MANY = 210


class Rests:
    """What the broker does when it has appended a slice: `between` is called on its loop."""

    def __init__(self) -> None:
        self.count = 0
        self.between: Callable[[int], None] = lambda count: None


@pytest.fixture
def rests(moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Rests:
    rests = Rests()
    rest = Slices.rest
    own = inside(moldau_broker, lambda _: threading.get_ident())

    async def watched(slices: Slices) -> None:
        if threading.get_ident() == own:
            rests.count += 1
            rests.between(rests.count)
        await rest(slices)

    monkeypatch.setattr(Slices, "rest", watched)
    return rests


def ask(
    client: Client, topics: dict[str, int], acks: int = -1, **batch: Any
) -> list[tuple[int, int]]:
    """Write to all partitions of these topics; the code and the offset of each."""
    values = {
        topic: {index: make_batch(b"v", **batch) for index in range(count)}
        for topic, count in topics.items()
    }
    answer = client.ask(Api.PRODUCE, 9, **produce_values(values, acks=acks))
    assert [each.name for each in answer.responses] == list(topics)
    return [
        (result.error_code, result.base_offset)
        for topic in answer.responses
        for place, result in enumerate(topic.partition_responses)
        if result.index == place
    ]


def test_each_partition_of_many_has_its_answer_and_few_are_written_at_a_time(
    moldau_broker: Broker, rests: Rests, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended: list[int] = []
    append = Partition.append

    def watched(partition: Partition, *given: object) -> tuple[int, int]:
        appended[-1] += 1
        return append(partition, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Partition, "append", watched)
    rests.between = lambda count: appended.append(0)
    with Client(moldau_broker) as client:
        one, two = client.create(partitions=MANY), client.create(partitions=70)
        rests.count = 0
        appended.append(0)
        assert ask(client, {one: MANY, two: 70}) == [(0, 0)] * (MANY + 70)
        assert rests.count > 1
        assert sum(appended) == MANY + 70
        assert max(appended) <= 64
        assert ask(client, {one: MANY, two: 70}) == [(0, 1)] * (MANY + 70)
        assert client.values(one, MANY - 1) == [b"v", b"v"]
        rests.count = 0
        assert ask(client, {two: 70}) == [(0, 2)] * 70
        assert rests.count == 0


def test_others_are_served_meanwhile_and_the_senders_own_requests_keep_their_order(
    moldau_broker: Broker, rests: Rests
) -> None:
    reached, opened = threading.Event(), asyncio.Event()
    rest = Slices.rest

    async def held(slices: Slices) -> None:
        reached.set()
        await opened.wait()
        await rest(slices)

    with (
        pytest.MonkeyPatch.context() as patch,
        Client(moldau_broker) as client,
        Client(moldau_broker) as other,
    ):
        topic = client.create(partitions=MANY)
        patch.setattr(Slices, "rest", held)
        batches = {index: make_batch(b"v") for index in range(MANY)}
        client.send_bytes(
            client.frame(Api.PRODUCE, 9, **produce_values({topic: batches}))
            + client.frame(Api.PRODUCE, 9, **produce_values({topic: {MANY - 1: make_batch(b"w")}}))
        )
        assert reached.wait(PATIENCE_S)
        assert other.produce(topic, make_batch(b"x"), partition=0).base_offset == 1
        assert other.end_of(topic, MANY - 1) == 0
        inside(moldau_broker, lambda server: opened.set())
        first, second = client.receive(), client.receive()
        assert len(first.responses[0].partition_responses) == MANY
        assert second.responses[0].partition_responses[0].base_offset == 1
        assert client.values(topic, MANY - 1) == [b"v", b"w"]


def test_a_partition_that_the_disk_refuses_fails_alone_and_is_remembered(
    moldau_broker: Broker, rests: Rests
) -> None:
    write = Writer.write

    def refuse(writer: Writer) -> None:
        if writer.segments.folder.endswith("-150"):
            raise StorageError(writer.segments.folder, "no space left on device")
        write(writer)

    with Client(moldau_broker) as client:
        topic = client.create(partitions=MANY)
        producer = {"producer_id": 7, "producer_epoch": 0}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Writer, "write", refuse)
            codes = [code for code, _ in ask(client, {topic: MANY}, **producer, base_sequence=0)]
        assert codes == [Error.KAFKA_STORAGE_ERROR if n == 150 else 0 for n in range(MANY)]
        second = ask(client, {topic: MANY}, **producer, base_sequence=1)
        refused = second.pop(150)
        assert refused[0] != 0
        assert second == [(0, 1)] * (MANY - 1)
        assert client.values(topic, 150) == []


def test_what_was_written_in_an_epoch_that_has_ended_is_not_taken_for_replicated(
    moldau_broker: Broker, rests: Rests
) -> None:
    """It was cut off by the leader in between, which has written something else there."""
    server = moldau_broker._server
    assert server is not None

    def lead_anew(count: int) -> None:
        if count == 2:
            server.partitions[topic, 0].leader_epoch += 2

    with Client(moldau_broker) as client:
        topic = client.create(partitions=MANY)
        rests.count, rests.between = 0, lead_anew
        codes = [code for code, _ in ask(client, {topic: MANY})]
        assert codes == [Error.NOT_LEADER_OR_FOLLOWER] + [0] * (MANY - 1)


def test_whoever_leads_no_more_takes_nothing_of_the_slices_to_come(
    moldau_broker: Broker, rests: Rests
) -> None:
    server = moldau_broker._server
    assert server is not None
    with Client(moldau_broker) as client:
        topic = client.create(partitions=MANY)
        rests.count = 0
        rests.between = lambda count: server.replicas.fence(True) if count == 2 else None
        codes = [code for code, _ in ask(client, {topic: MANY}, acks=1)]
        assert codes == [0] * 128 + [Error.NOT_LEADER_OR_FOLLOWER] * (MANY - 128)


def test_acks_all_waits_for_the_last_of_many(moldau_broker: Broker) -> None:
    def follow(in_sync: bool) -> Callable[[Server], None]:
        def change(server: Server) -> None:
            for index in (0, MANY - 1):
                partition = server.partitions[topic, index]
                partition.isr = (0, 1) if in_sync else (0,)
                partition._advance_high_watermark()
                partition.wake()

        return change

    with Client(moldau_broker) as client:
        topic = client.create(partitions=MANY)
        inside(moldau_broker, follow(True))
        batches = {index: make_batch(b"v") for index in range(MANY)}
        client.send(Api.PRODUCE, 9, **produce_values({topic: batches}))
        last = inside(moldau_broker, lambda server: server.partitions[topic, MANY - 1])
        until(lambda: last.waiters, "the write to wait")
        client.expect_nothing()
        inside(moldau_broker, follow(False))
        results = client.receive().responses[0].partition_responses
        assert [each.error_code for each in results] == [0] * MANY
        assert not last.waiters


def test_a_sender_that_goes_has_written_all_of_it(moldau_broker: Broker, rests: Rests) -> None:
    with Client(moldau_broker) as client, Client(moldau_broker) as other:
        topic = client.create(partitions=MANY)
        rests.count = 0
        rests.between = lambda count: client.reset() if count == 1 else None
        batches = {index: make_batch(b"v") for index in range(MANY)}
        client.send(Api.PRODUCE, 9, **produce_values({topic: batches}))
        until(lambda: other.end_of(topic, MANY - 1) == 1, "the last batch")
