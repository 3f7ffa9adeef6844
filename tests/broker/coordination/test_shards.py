"""Shards of any internal topic: a state class with its records is all that a coordinator adds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from moldau.broker.coordination import shards as shards_module
from moldau.broker.coordination.journal import Journal, nothing
from moldau.broker.coordination.loading import load
from moldau.broker.coordination.node_host import NodeHost
from moldau.broker.coordination.placement import Size
from moldau.broker.coordination.records import InvalidRecord, KeyValue
from moldau.broker.coordination.shards import Shards
from moldau.broker.partitions.partition import Partition
from moldau.broker.server import Broker as Server
from moldau.cluster.state.internal_topics import TRANSACTION_STATE
from moldau.cluster.state.topics import PartitionState
from moldau.testing import Broker
from moldau.testing.waiting import until_async
from moldau.wire.errors import Error

T = TypeVar("T")


class Words:
    """A state that knows words by their keys; a word of one letter is no word."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.words: dict[str, str] = {}
        self.has_begun = self.has_ended = False

    def read_back(self, key: bytes, value: bytes) -> None:
        if len(value) == 1:
            raise InvalidRecord(f"{value!r} is no word")
        self.words[key.decode()] = value.decode()

    def read_back_open(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        self.words.setdefault(f"{producer_id} {key.decode()}", (value or b"").decode())

    def begin(self) -> None:
        self.has_begun = True

    def end(self) -> None:
        self.has_ended = True

    def write(self, *records: KeyValue) -> list[Error]:
        """What comes of it, as it comes."""
        outcomes: list[Error] = []

        def apply() -> None:
            for key, value in records:
                if value is None:
                    self.words.pop(key.decode(), None)
                else:
                    self.words[key.decode()] = value.decode()

        self.journal.write(records, 1_000, apply, outcomes.append)
        return outcomes


class Coordinator:
    """One shard on a real broker; roles are given by hand, as the controller would."""

    def __init__(self, server: Server) -> None:
        self.shards: Shards[Words] = Shards(
            TRANSACTION_STATE,
            NodeHost(server.node, server.controller, server.replicas),
            size=lambda: Size(1, 1, 1 << 20),
            write_timeout_ms=lambda: 60_000,
            new_state=Words,
        )
        self.server = server
        server.replicas.owners[TRANSACTION_STATE.name] = self.shards

    @property
    def partition(self) -> Partition:
        return self.server.partitions[TRANSACTION_STATE.name, 0]

    def give(self, leader: int, isr: tuple[int, ...] = (0,), *, is_new_epoch: bool = True) -> None:
        partition = self.partition
        epoch = partition.leader_epoch + is_new_epoch
        partition.become(PartitionState(tuple({0, *isr}), isr, leader, epoch))
        self.shards.partition_changed(partition)
        partition.wake()

    def find(self) -> Words:
        found = self.shards.find("any")
        assert isinstance(found, Words)
        return found

    async def loaded(self) -> Words:
        await until_async(lambda: not self.shards.is_loading, "it is read back")
        return self.find()


Story = Callable[[Coordinator], Coroutine[Any, Any, None]]
Tell = Callable[[Story], None]


@pytest.fixture
def tell() -> Iterator[Tell]:
    with Broker() as broker:
        server = broker._server
        assert server is not None

        async def play(story: Story) -> None:
            coordinator = Coordinator(server)
            assert await coordinator.shards.ensure_topic() is None
            await story(coordinator)

        yield lambda story: broker._call(play(story))


def test_the_topic_is_made_as_the_registry_and_the_settings_say(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        topic = coordinator.server.state.topics[TRANSACTION_STATE.name]
        assert topic.is_internal
        assert len(topic.partitions) == 1
        assert topic.configs == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(1 << 20),
            "unclean.leader.election.enable": "false",
        }
        assert coordinator.shards.leader_of("any") == 0
        assert coordinator.find().words == {}

    tell(story)


def test_a_shard_goes_on_from_what_it_wrote_and_a_bad_record_costs_only_itself(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        first = coordinator.find()
        assert first.write((b"a", b"old"), (b"b", b"bee"), (b"c", b"sea")) == [Error.NONE]
        assert first.write((b"a", b"new"), (b"b", None), (b"d", b"?")) == [Error.NONE]
        coordinator.give(7)
        assert first.has_ended
        assert coordinator.shards.find("any") is Error.NOT_COORDINATOR
        coordinator.give(0)
        assert coordinator.shards.find("any") is Error.COORDINATOR_LOAD_IN_PROGRESS
        second = await coordinator.loaded()
        assert second is not first
        assert second.has_begun
        assert second.words == {"a": "new", "c": "sea"}

    tell(story)


def test_nobody_acts_on_what_the_in_sync_replicas_may_not_have(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        coordinator.give(0, isr=(0, 7))
        first = await coordinator.loaded()
        outcomes = first.write((b"a", b"decided"))
        assert outcomes == []
        coordinator.give(0, isr=(0, 7))
        assert outcomes == [Error.NOT_COORDINATOR]
        await until_async(
            lambda: bool(coordinator.shards._shards[0].state.words), "it is read back"
        )
        for _ in range(10):
            await asyncio.sleep(0)
        assert coordinator.shards.find("any") is Error.COORDINATOR_LOAD_IN_PROGRESS
        # Whoever leads after it in the next epoch may lack it; here the same does, and has it.
        coordinator.give(0, isr=(0, 7))
        await until_async(
            lambda: bool(coordinator.shards._shards[0].state.words), "it is read back"
        )
        waiting = coordinator.shards._shards[0].state
        assert not waiting.has_begun
        coordinator.give(0, isr=(0,), is_new_epoch=False)
        second = await coordinator.loaded()
        assert second is waiting
        assert second.has_begun
        assert second.words == {"a": "decided"}

    tell(story)


def test_who_reads_back_for_an_older_epoch_comes_too_late(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(coordinator: Coordinator) -> None:
        coordinator.find().write((b"a", b"old"))
        gates: list[asyncio.Event] = []

        async def slow_load(*what: Any) -> None:
            gate = asyncio.Event()
            gates.append(gate)
            await load(*what)
            await gate.wait()

        made: list[Words] = []

        def new_state(journal: Journal) -> Words:
            made.append(Words(journal))
            return made[-1]

        monkeypatch.setattr(shards_module, "load", slow_load)
        monkeypatch.setattr(coordinator.shards, "_new_state", new_state)
        coordinator.give(0)
        await until_async(lambda: len(gates) == 1, "the older one reads")
        coordinator.give(0)
        await until_async(lambda: len(gates) == 2, "the newer one reads")
        older, newer = made
        assert older.has_ended
        # The older one is through first, and must not be taken for the newer one.
        gates[0].set()
        await until_async(lambda: older.words, "the older one has read")
        for _ in range(10):
            await asyncio.sleep(0)
        assert coordinator.shards.find("any") is Error.COORDINATOR_LOAD_IN_PROGRESS
        gates[1].set()
        assert await coordinator.loaded() is newer
        assert not older.has_begun

    tell(story)


@pytest.mark.parametrize("leader", [0, 7], ids=["in another epoch", "by another broker"])
def test_a_write_that_waits_fails_when_the_partition_is_led_anew(tell: Tell, leader: int) -> None:
    async def story(coordinator: Coordinator) -> None:
        shard = coordinator.find()
        coordinator.give(0, (0, 1), is_new_epoch=False)
        waiting = shard.write((b"a", b"half"))
        assert waiting == []
        coordinator.give(leader, (leader,))
        assert waiting == [Error.NOT_COORDINATOR]
        assert shard.words == {}
        assert coordinator.partition.waiters == {}

    tell(story)


def test_the_watermark_of_a_later_epoch_says_nothing_about_a_write_of_this_one(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        shard = coordinator.find()
        coordinator.give(0, (0, 1), is_new_epoch=False)
        waiting = shard.write((b"a", b"half"))
        partition = coordinator.partition
        # The watermark moves and wakes the journal before the coordinator hears of its new role.
        partition.become(PartitionState((0,), (0,), 0, partition.leader_epoch + 1))
        partition.wake()
        assert waiting == [Error.NOT_COORDINATOR]
        assert shard.words == {}

    tell(story)


def test_a_shard_that_has_ended_writes_nothing_more(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        shard = coordinator.find()
        coordinator.give(0)
        end = coordinator.partition.log.log_end
        assert shard.write((b"a", b"late")) == [Error.NOT_COORDINATOR]
        assert coordinator.partition.log.log_end == end
        assert (await coordinator.loaded()).words == {}

    tell(story)


def test_shards_end_with_their_topic(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        shard = coordinator.find()
        shard.journal.write([(b"a", b"word")], 1_000, nothing, lambda error: None)
        coordinator.shards.topic_deleted("another")
        assert not shard.has_ended
        await coordinator.server.controller.delete_topics([TRANSACTION_STATE.name])
        await until_async(lambda: shard.has_ended, "it has ended")
        assert coordinator.shards.find("any") is Error.NOT_COORDINATOR
        assert await coordinator.shards.ensure_topic() is None
        assert (await coordinator.loaded()).words == {}

    tell(story)


def test_records_that_do_not_all_fit_are_not_written_in_part(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        shard, log = coordinator.find(), coordinator.partition.log
        assert shard.write((b"a", b"before")) == [Error.NONE]
        limit = log.config.max_message_bytes
        half, end = b"x" * (limit // 2), log.log_end
        too_much = [(b"a", half), (b"b", half), (b"c", half + half)]
        assert shard.write(*too_much) == [Error.UNKNOWN_SERVER_ERROR]
        assert log.log_end == end
        # What fits is divided into several batches.
        assert shard.write((b"a", half), (b"b", half), (b"c", half)) == [Error.NONE]
        assert log.log_end == end + 3

    tell(story)
