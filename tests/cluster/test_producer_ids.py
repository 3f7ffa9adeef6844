from __future__ import annotations

import asyncio
from typing import cast

import pytest

from moldau.cluster.producer_ids import BLOCK_SIZE, ProducerIds
from moldau.cluster.store import MetadataStore, StoreError


class Blocks:
    """The part of a store that gives out blocks; it answers when told to."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[range]] = []

    async def allocate_producer_ids(self, count: int) -> range:
        self.asked.append(asyncio.get_running_loop().create_future())
        return await self.asked[-1]


async def waiting(ids: ProducerIds, count: int) -> list[asyncio.Task[int]]:
    """So many who want an id, after each has asked."""
    tasks = [asyncio.create_task(ids.next()) for _ in range(count)]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


def test_all_who_wait_share_one_block_and_each_gets_an_id_of_its_own() -> None:
    async def story() -> None:
        blocks = Blocks()
        ids = ProducerIds(cast(MetadataStore, blocks))
        gone, *others = await waiting(ids, 4)
        gone.cancel()
        await asyncio.sleep(0)
        assert len(blocks.asked) == 1
        blocks.asked[0].set_result(range(1000, 1000 + BLOCK_SIZE))
        assert sorted(await asyncio.gather(*others)) == [1000, 1001, 1002]
        assert await ids.next() == 1003

    asyncio.run(story())


def test_when_a_block_cannot_be_had_nobody_waits_for_another_attempt() -> None:
    async def story() -> None:
        blocks = Blocks()
        ids = ProducerIds(cast(MetadataStore, blocks))
        tasks = await waiting(ids, 3)
        blocks.asked[0].set_exception(StoreError("out of reach"))
        for task in tasks:
            with pytest.raises(StoreError, match="out of reach"):
                await task
        assert len(blocks.asked) == 1
        (later,) = await waiting(ids, 1)
        blocks.asked[1].set_result(range(7, 8))
        assert await later == 7

    asyncio.run(story())
