"""Logs that part and come together again, as scripts (KIP-101, KIP-279, KIP-595)."""

from __future__ import annotations

import logging

import pytest

from moldau.testing.waiting import until_async
from moldau.wire.errors import Error
from tests.broker.replication.brokers import Brokers, held
from tests.broker.replication.conftest import Tell


def test_a_follower_that_restarts_keeps_what_it_had_above_its_high_watermark(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.write(0, "t", "m1", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=1)
        # The follower has the message; that it is committed it hears only with a later answer.
        await cluster.write(0, "t", "m2", acks=-1)
        await cluster.stop(1)
        await cluster.start(1)
        assert cluster.partition(1, "t").log.log_end == 2
        await cluster.until_in_sync("t", (0, 1))
        await cluster.lead("t", 1, (1,))
        assert await cluster.values(1, "t") == ["m1", "m2"]

    tell(story)


def test_what_an_old_leader_alone_had_gives_way_to_the_new_leader(
    tell: Tell, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.write(0, "t", "both", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=1)
        cluster.deafen(1)
        await cluster.write(0, "t", "old-1", "old-2")
        cluster.hear(1)
        # Before the follower could ask, it has become the leader.
        cluster.deafen(1)
        await cluster.lead("t", 1, (0, 1))
        await cluster.write(1, "t", "new", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=2)
        assert held(cluster.partition(0, "t")) == ["both", "new"]
        assert cluster.partition(0, "t").log.epochs.entries == [(0, 0), (1, 1)]

    tell(story)
    assert "below the high watermark" not in caplog.text


def test_epochs_that_the_leader_never_had_are_cut_round_by_round(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.write(0, "t", "a", "b", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=2)
        cluster.deafen(0)
        cluster.deafen(1)
        # Each leads alone for a while, twice, and none hears of the other.
        for leader, value in ((1, "y1"), (0, "x1"), (1, "y2"), (0, "x2")):
            await cluster.lead("t", leader, (leader,))
            await cluster.write(leader, "t", value, acks=1)
        await cluster.lead("t", 1, (1,))
        await cluster.write(1, "t", "z", acks=1)
        first, second = cluster.partition(0, "t"), cluster.partition(1, "t")
        assert first.log.epochs.entries == [(0, 0), (2, 2), (4, 3)]
        assert second.log.epochs.entries == [(0, 0), (1, 2), (3, 3), (5, 4)]
        cluster.hear(0)
        await cluster.until_same("t", 0, 1, watermark=5)
        assert held(first) == ["a", "b", "y1", "y2", "z"]
        await cluster.until_in_sync("t", (0, 1))

    tell(story)


def test_an_unclean_leader_makes_others_forget_committed_messages_loudly(
    tell: Tell, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=1)
        cluster.deafen(1)
        await cluster.lead("t", 0, (0,))
        await cluster.write(0, "t", "b", "c", "d", acks=-1)
        assert cluster.partition(0, "t").log.high_watermark == 4
        cluster.hear(1)
        cluster.deafen(1)
        await cluster.lead("t", 1, (1,))
        await cluster.until_same("t", 0, 1, watermark=1)
        await cluster.write(1, "t", "e", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=2)
        assert held(cluster.partition(0, "t")) == ["a", "e"]

    with caplog.at_level(logging.ERROR, "moldau.replication"):
        tell(story)
    assert "below the high watermark" in caplog.text


def test_a_follower_whose_log_is_longer_than_an_unclean_leaders_is_cut_to_its_end(
    tell: Tell,
) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        cluster.deafen(1)
        await cluster.lead("t", 0, (0,))
        await cluster.write(0, "t", "a", "b", acks=-1)
        # A leader that has never had anything, in the first epoch that it knows of.
        await cluster.lead("t", 1, (1,))
        await until_async(lambda: cluster.ends("t", 0, 1) == [0, 0], "both are empty")
        await cluster.write(1, "t", "c", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=1)
        assert held(cluster.partition(0, "t")) == ["c"]

    tell(story)


def test_producers_are_known_to_followers_and_forgotten_with_what_is_cut(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")

        async def send(leader: int, sequence: int, acks: int = -1) -> tuple[Error, int]:
            answer = await cluster.produce(
                leader, "t", f"s{sequence}", acks=acks, producer_id=7, producer_epoch=0,
                base_sequence=sequence,
            )  # fmt: skip
            return Error(answer.error_code), int(answer.base_offset)

        assert await send(0, 0) == (Error.NONE, 0)
        assert await send(0, 1) == (Error.NONE, 1)
        await cluster.until_same("t", 0, 1, watermark=2)
        cluster.deafen(1)
        assert await send(0, 2, acks=1) == (Error.NONE, 2)
        await cluster.lead("t", 1, (0, 1))
        # The new leader knows what was copied, and not what was lost.
        assert await send(1, 1) == (Error.NONE, 1)
        assert await send(1, 3) == (Error.NOT_LEADER_OR_FOLLOWER, -1)
        assert await send(1, 2) == (Error.NONE, 2)
        cluster.hear(1)
        await cluster.until_same("t", 0, 1, watermark=3)
        # So does the old one, which had to give it up and got it again.
        await cluster.lead("t", 0, (0, 1))
        assert await send(0, 2) == (Error.NONE, 2)
        assert await send(0, 3) == (Error.NONE, 3)
        await cluster.until_same("t", 0, 1, watermark=4)
        assert held(cluster.partition(1, "t")) == ["s0", "s1", "s2", "s3"]

    tell(story)


def test_a_truncation_below_the_recovery_point_is_written_down_before_the_log_grows(
    tell: Tell,
) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=1)
        cluster.deafen(1)
        await cluster.write(0, "t", "b", "c")
        await cluster[0]._upkeep.checkpoint()
        points = cluster[0].settings.folder / "recovery-point-offset-checkpoint"
        assert "t 0 3" in points.read_text()
        await cluster.lead("t", 1, (0, 1))
        await until_async(lambda: cluster.ends("t", 0) == [1], "the cut")
        # The whole file that was cut is to be forced to disk again.
        await until_async(lambda: "t 0 0" in points.read_text(), "the new recovery point")
        await cluster.write(1, "t", "d", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=2)

    tell(story)
