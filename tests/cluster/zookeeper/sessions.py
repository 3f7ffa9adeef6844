"""Stores whose sessions tests can end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.cluster.zookeeper.clusters import Member


@asynccontextmanager
async def opened(connect: str, id: int) -> AsyncIterator[Member]:
    """A member that is not registered."""
    member = Member(connect, id)
    await member.store.open()
    try:
        yield member
    finally:
        await member.store.close()
