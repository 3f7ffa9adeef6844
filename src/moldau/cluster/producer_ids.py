"""Producer ids, one at a time."""

from __future__ import annotations

import asyncio

from moldau.cluster.store import MetadataStore

BLOCK_SIZE = 1000


class ProducerIds:
    """Hands out producer ids that never repeat. Event loop only.

    They come from the store in blocks, so that one costs no write of its own; what is left of a
    block when the broker stops is never used. All who wait for a block share its outcome: when the
    store is out of reach, nobody has to wait for more than one attempt.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._block = iter(range(0))
        self._refill: asyncio.Task[None] | None = None

    async def next(self) -> int:
        """Return a producer id nobody has had; StoreError if the store cannot give any."""
        while (producer_id := next(self._block, None)) is None:
            if self._refill is None:
                self._refill = asyncio.create_task(self._take_block(), name="producer-ids")
            # A waiter that gives up does not take the block away from the others.
            await asyncio.shield(self._refill)
        return producer_id

    async def _take_block(self) -> None:
        try:
            self._block = iter(await self._store.allocate_producer_ids(BLOCK_SIZE))
        finally:
            self._refill = None
