"""The nodes that every cluster has."""

from __future__ import annotations

from moldau.cluster.embedded import new_cluster_id
from moldau.cluster.store import StoreError
from moldau.cluster.zookeeper.sessions.operations import Create, NoNode, Refused
from moldau.cluster.zookeeper.sessions.session import Session
from moldau.cluster.zookeeper.znodes import FORMAT, Paths


async def create_cluster(session: Session, paths: Paths) -> None:
    """Create what is not there yet, chroot included; StoreError if the place is another's."""
    parts = paths.chroot.split("/")
    for end in range(2, len(parts) + 1):
        await _create(session, "/".join(parts[:end]))
    if await session.exists(paths.format) is None:
        is_used = await session.exists(paths.brokers) or await session.exists(paths.controller)
        # Another broker that creates the cluster at this moment begins with its format.
        if is_used and await session.exists(paths.format) is None:
            raise StoreError(
                f"{paths.chroot or '/'} in ZooKeeper is in use by something that is not "
                "Moldau; give the cluster its own chroot (HOST:PORT/CHROOT)"
            )
        await _create(session, paths.format, FORMAT)
    version, _ = await session.get(paths.format)
    if version != FORMAT:
        raise StoreError(
            f"{paths.format} in ZooKeeper says {version[:40]!r}, but this Moldau knows "
            f"only {FORMAT!r}: another version created the cluster"
        )
    for path in (
        *(paths.brokers, paths.folders, paths.topics, paths.ids, paths.configs),
        *(paths.broker_configs, paths.access, paths.deleted, paths.changes),
    ):
        await _create(session, path)
    await _create(session, paths.controller_epoch, b"0")
    await _create(session, paths.producer_ids, b"0")
    await _create(session, paths.id, new_cluster_id().encode())
    await _lock(session, paths)


async def _lock(session: Session, paths: Paths) -> None:
    """Leave to the brokers alone what was created before that was their rule.

    The last node of all is the sign that it is done: a broker that is stopped midway begins again.
    """
    if await session.is_locked(paths.id):
        return
    for path in (
        *(paths.brokers, paths.folders, paths.topics, paths.ids, paths.configs, paths.access),
        *(paths.deleted, paths.changes, paths.producer_ids, paths.controller_epoch, paths.format),
    ):
        await _lock_all(session, path)
    if paths.chroot:
        # Whoever may write to it may delete the nodes in it.
        await session.lock(paths.chroot)
    await session.lock(paths.id)


async def _lock_all(session: Session, path: str) -> None:
    try:
        await session.lock(path)
        for name in await session.children(path):
            await _lock_all(session, f"{path}/{name}")
    except NoNode:
        # Deleted meanwhile.
        return


async def _create(session: Session, path: str, data: bytes = b"") -> None:
    """Create a node unless it is there."""
    if await session.exists(path) is None:
        try:
            await session.multi([Create(path, data)])
        except Refused:
            # Another broker was first.
            if await session.exists(path) is None:
                raise
