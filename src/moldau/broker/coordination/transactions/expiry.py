"""Expiry: transactions that were open for too long, and transactional ids that nobody uses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from moldau.broker.coordination.transactions.held import HeldTransaction, HeldTransactions
from moldau.broker.coordination.transactions.machine import has_expired, has_timed_out
from moldau.wire.errors import Error

logger = logging.getLogger("moldau.transactions")

All = Sequence[tuple[HeldTransactions, HeldTransaction]]
# How many are looked at before the loop serves others again.
_AT_A_TIME = 1_000


async def abort_timed_out(
    all_held: All, now_ms: int, abort: Callable[[HeldTransaction], Awaitable[None]]
) -> None:
    """Abort transactions that have been open for longer than their producers wanted.

    All at once: one whose write has to wait for a replica must not hold up the others.
    """
    aborting = []
    for count, (shard, held) in enumerate(all_held, 1):
        value = None if shard.has_ended or not held.is_settled else held.value
        if value is not None and has_timed_out(value, now_ms):
            aborting.append(abort(held))
        if count % _AT_A_TIME == 0:
            await asyncio.sleep(0)
    await asyncio.gather(*aborting)


async def forget_expired(all_held: All, now_ms: int, expiration_ms: int) -> None:
    """Forget transactional ids that nobody has used for long."""
    for count, (shard, held) in enumerate(all_held, 1):
        value = None if shard.has_ended or not held.is_settled else held.value
        if value is not None and has_expired(value, now_ms, expiration_ms):
            logger.info("transactional id %r has expired", held.id)
            shard.forget(held, now_ms, _complain)
        if count % _AT_A_TIME == 0:
            await asyncio.sleep(0)


def _complain(error: Error) -> None:
    """Say that a tombstone failed that nobody waits for; it is tried again at the next round."""
    if error:
        logger.warning("could not remove an expired transactional id: %s", error.name)
