"""Retention: offsets that nobody has committed for long are deleted, and groups without any."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from moldau.broker.coordination.groups.held import HeldGroup
from moldau.wire.errors import Error

logger = logging.getLogger("moldau.groups")

# How many groups are looked through before the loop serves others again.
_GROUPS_AT_A_TIME = 100


async def expire_offsets(
    groups: Sequence[HeldGroup], retention_ms: int, now_ms: Callable[[], int]
) -> None:
    """Delete the offsets that have outlived their retention, and groups that have nothing left."""
    for count, held in enumerate(groups, 1):
        group = held.group
        # By now it may have been deleted, or another broker may coordinate it.
        if group.is_dead:
            continue
        expired = held.offsets.expired(group, held.emptied_at, now_ms(), retention_ms)
        if expired:
            held.remove_offsets(expired, now_ms(), complain)
            logger.info("group %r: %d offsets expired", group.id, len(expired))
        if group.expires and group.is_forgettable and not held.offsets:
            held.delete(now_ms(), complain)
        if count % _GROUPS_AT_A_TIME == 0:
            await asyncio.sleep(0)


def complain(error: Error) -> None:
    """Say that a deletion failed that nobody waits for; it is tried again at the next round."""
    if error:
        logger.warning("could not delete offsets: %s", error.name)
