"""Trimming: the controller removes from ZooKeeper what nobody needs any more."""

from __future__ import annotations

import time
from collections.abc import Sequence

from moldau.cluster.zookeeper.sessions.operations import (
    Check,
    Delete,
)
from moldau.cluster.zookeeper.sessions.session import Session
from moldau.cluster.zookeeper.znodes import Paths

# A broker that is further behind reads everything again, which is no more work than that many
# notices.
KEPT_NOTICES = 250
KEPT_DELETED_MS = 7 * 24 * 3600 * 1000
_AT_ONCE = 250


async def trim_notices(
    session: Session, paths: Paths, guards: Sequence[Check], notices: list[str]
) -> list[str]:
    """Delete the oldest notices when there are twice as many as are kept; answers those left.

    From the oldest on and never all: whoever finds the last one that it knows has missed none.
    Refused if another is the controller, or trimmed them already.
    """
    if len(notices) < 2 * KEPT_NOTICES:
        return notices
    old = notices[:-KEPT_NOTICES]
    for start in range(0, len(old), _AT_ONCE):
        part = old[start : start + _AT_ONCE]
        await session.multi([*guards, *(Delete(paths.change(name)) for name in part)])
    return notices[-KEPT_NOTICES:]


async def trim_deleted(session: Session, paths: Paths, guards: Sequence[Check]) -> None:
    """Forget topics that were deleted so long ago that every broker has removed their folders."""
    nodes = [f"{paths.deleted}/{name}" for name in await session.children(paths.deleted)]
    oldest_ms = time.time_ns() // 1_000_000 - KEPT_DELETED_MS
    old = [
        path
        for path, found in zip(nodes, await session.get_many(nodes), strict=True)
        if found is not None and found[1].changed_ms < oldest_ms
    ]
    for start in range(0, len(old), _AT_ONCE):
        part = old[start : start + _AT_ONCE]
        await session.multi([*guards, *(Delete(path) for path in part)])
