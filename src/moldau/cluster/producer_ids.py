"""Producer ids, one at a time."""

from __future__ import annotations

import asyncio

from moldau.cluster.store import MetadataStore

BLOCK_SIZE = 1000


class ProducerIds:
    """Hands out producer ids that never repeat. Event loop only.

    They come from the store in blocks, so that one costs no write of its own; what is left of a
    block when the broker stops is never used.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._block = iter(range(0))
        self._refilling = asyncio.Lock()

    async def next(self) -> int:
        """A producer id nobody has had; StoreError if the store cannot give any."""
        while (producer_id := next(self._block, None)) is None:
            block = self._block
            async with self._refilling:
                if self._block is block:
                    self._block = iter(await self._store.allocate_producer_ids(BLOCK_SIZE))
        return producer_id
