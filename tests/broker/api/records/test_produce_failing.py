"""Produce where something fails: another leads, replicas lag, the disk refuses."""

from __future__ import annotations

import pytest

from moldau.broker.partitions.partition import Partition
from moldau.broker.server import Broker as Server
from moldau.log.errors import StorageError
from moldau.log.writer import Writer
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, inside, make_batch, produce_values

# Leadership and storage


def test_a_broker_that_does_not_lead_says_who_does(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t")
    with Client(moldau_broker) as client:
        topic_id = client.topic_id("t")

        def resign(server: Server) -> None:
            partition = server.partitions["t", 0]
            partition.is_leader = False
            partition.leader, partition.leader_epoch = 5, 9

        inside(moldau_broker, resign)
        for version, key in ((9, "t"), (10, "t"), (13, topic_id)):
            client.send_produce(key, make_batch(b"x"), version=version)
            answer = client.receive()
            result = answer.responses[0].partition_responses[0]
            assert result.error_code == Error.NOT_LEADER_OR_FOLLOWER
            if version >= 10:
                leader = result.current_leader
                assert (leader.leader_id, leader.leader_epoch) == (5, 9)
                assert [each.node_id for each in answer.node_endpoints] == [0]


def test_acks_all_is_answered_when_the_high_watermark_has_passed_the_write(
    moldau_broker: Broker,
) -> None:
    moldau_broker.create_topic("t")
    with Client(moldau_broker) as client, Client(moldau_broker) as other:

        def add_follower(is_in_sync: bool) -> None:
            def change(server: Server) -> None:
                partition = server.partitions["t", 0]
                partition.isr = (0, 1) if is_in_sync else (0,)
                partition._advance_high_watermark()
                partition.wake()

            inside(moldau_broker, change)

        add_follower(True)
        client.send_produce("t", make_batch(b"x"), acks=-1)
        assert other.produce("t", make_batch(b"y"), acks=1).base_offset == 1
        assert other.fetch("t", 0).high_watermark == 0
        client.expect_nothing()
        add_follower(False)
        assert client.receive().responses[0].partition_responses[0].base_offset == 0
        partition = inside(moldau_broker, lambda server: server.partitions["t", 0])
        assert not partition.waiters

        add_follower(True)
        values = produce_values({"t": {0: make_batch(b"z")}}) | {"timeout": 1}
        late = client.ask(Api.PRODUCE, 9, **values).responses[0].partition_responses[0]
        assert late.error_code == Error.REQUEST_TIMED_OUT
        assert not partition.waiters

        client.send_produce("t", make_batch(b"w"), acks=-1)
        until(lambda: partition.waiters, "the write to wait")
        client.reset()
        until(lambda: not partition.waiters, "the waiting write to be dropped")


def test_a_disk_that_refuses_is_an_error_for_the_writes_of_one_receive_and_no_other(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("good", "bad"):
        moldau_broker.create_topic(name)
    write = Writer.write

    def refuse(writer: Writer) -> None:
        if writer.segments.folder.endswith("bad-0"):
            raise StorageError(writer.segments.folder, "no space left on device")
        write(writer)

    monkeypatch.setattr(Writer, "write", refuse)
    with Client(moldau_broker) as client:
        frames = [
            client.frame(Api.PRODUCE, 9, **produce_values({name: {0: make_batch(b"x")}}))
            for name in ("bad", "good", "bad")
        ]
        client.send_bytes(b"".join(frames))
        codes = [client.receive().responses[0].partition_responses[0].error_code for _ in frames]
        assert codes == [Error.KAFKA_STORAGE_ERROR, 0, Error.KAFKA_STORAGE_ERROR]
        monkeypatch.undo()
        assert client.produce("bad", make_batch(b"y")).base_offset == 0
        assert client.values("good") == [b"x"]
        assert client.values("bad") == [b"y"]


def test_a_request_that_fails_midway_leaves_no_half_written_batch_behind(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        moldau_broker.create_topic(name)
    append = Partition.append

    def fail(partition: Partition, batch: memoryview, now_ms: int) -> tuple[int, int]:
        if partition.topic == "second":
            raise RuntimeError("nobody has thought of this")
        return append(partition, batch, now_ms)

    monkeypatch.setattr(Partition, "append", fail)
    wanted = {"first": {0: make_batch(b"kept")}, "second": {0: make_batch(b"lost")}}
    with Client(moldau_broker) as client:
        client.send(Api.PRODUCE, 9, **produce_values(wanted))
        # The rest of the receive is moved over what was staged.
        client.send_bytes(bytes(1000))
        assert client.is_closed()
    monkeypatch.undo()
    with Client(moldau_broker) as client:
        assert client.produce("first", make_batch(b"next")).error_code == 0
        assert client.values("first")[-1] == b"next"
        assert client.values("second") == []
