"""Reading the cluster's nodes. Invalid ones are logged and left out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from moldau.cluster.state.access import AccessChange, AccessDamaged, subject_of
from moldau.cluster.state.topics import BrokerInfo, Topic
from moldau.cluster.zookeeper.sessions.operations import Stat
from moldau.cluster.zookeeper.sessions.session import Session
from moldau.cluster.zookeeper.sessions.watcher import Watch
from moldau.cluster.zookeeper.znodes import (
    DamagedNode,
    Paths,
    decode_access,
    decode_broker,
    decode_broker_id,
    decode_config_name,
    decode_configs,
    decode_topic,
    decode_topic_id,
)

logger = logging.getLogger("moldau.cluster.zookeeper")

# Decoding thousands of topics lets others have the loop now and then.
_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class ReadTopics:
    """Topics as they were read: found ones with their versions, damaged ones, and those gone."""

    found: dict[str, tuple[Topic, int]]
    damaged: dict[str, str]
    gone: list[str]


async def read_topics(session: Session, paths: Paths, names: Iterable[str]) -> ReadTopics:
    ordered = sorted(names)
    nodes = await session.get_many(paths.topic(name) for name in ordered)
    read = ReadTopics({}, {}, [])
    for place, (name, node) in enumerate(zip(ordered, nodes, strict=True), 1):
        if place % _AT_ONCE == 0:
            await asyncio.sleep(0)
        if node is None:
            read.gone.append(name)
            continue
        data, stat = node
        try:
            read.found[name] = (decode_topic(paths.topic(name), name, data), stat.version)
        except DamagedNode as error:
            read.damaged[name] = str(error)
    return read


async def read_brokers(
    session: Session, paths: Paths, watch: Watch | None = None
) -> dict[int, tuple[BrokerInfo, Stat]]:
    """Return who is registered; `watch` hears of the next who comes or goes."""
    brokers: dict[int, tuple[BrokerInfo, Stat]] = {}
    for name, (data, stat) in (await _read_children(session, paths.brokers, watch)).items():
        try:
            id = decode_broker_id(paths.brokers, name)
            brokers[id] = (decode_broker(paths.broker(id), id, data, stat.czxid), stat)
        except DamagedNode as error:
            logger.error("%s; ignoring the broker", error)
    return brokers


async def read_configs(
    session: Session, paths: Paths
) -> dict[int | None, tuple[dict[str, str] | None, int]]:
    """Return the brokers' settings with their nodes' versions; None for settings that make no
    sense."""
    found: dict[int | None, tuple[dict[str, str] | None, int]] = {}
    for name, (data, stat) in (await _read_children(session, paths.broker_configs)).items():
        try:
            broker = decode_config_name(paths.broker_configs, name)
        except DamagedNode as error:
            logger.error("%s; ignoring the settings", error)
            continue
        try:
            found[broker] = (decode_configs(paths.broker_config(broker), data), stat.version)
        except DamagedNode as error:
            logger.error("%s; keeping the previous settings", error)
            found[broker] = (None, stat.version)
    return found


async def read_access(
    session: Session, paths: Paths, keys: Iterable[str] | None
) -> dict[str, tuple[AccessChange, int]]:
    """Return entries of who may do what with their nodes' versions, these or all, damaged ones
    included."""
    found: dict[str, tuple[AccessChange, int]] = {}
    if keys is None:
        keys = await session.children(paths.access)
    ordered = list(keys)
    nodes = await session.get_many(paths.access_entry(key) for key in ordered)
    for key, node in zip(ordered, nodes, strict=True):
        if node is None:
            continue
        data, stat = node
        try:
            found[key] = (decode_access(paths.access_entry(key), key, data), stat.version)
        except DamagedNode as error:
            if subject_of(key) is None:
                logger.error("%s, and Moldau does not use this name; ignoring it", error)
            else:
                found[key] = (AccessDamaged(key, str(error)), stat.version)
    return found


async def read_folders(session: Session, paths: Paths) -> dict[int, tuple[str, Stat]]:
    """Return the identities of the brokers' data folders as they were last registered. The versions
    of their nodes go up with each life of the broker."""
    found = await _read_children(session, paths.folders)
    return {
        int(name): (data.decode("utf-8", "replace"), stat)
        for name, (data, stat) in found.items()
        if name.isascii() and name.isdecimal()
    }


async def read_deleted(session: Session, paths: Paths) -> set[UUID]:
    """Return the ids of topics that were deleted not too long ago."""
    ids = set()
    for name in await session.children(paths.deleted):
        try:
            ids.add(decode_topic_id(paths.deleted, name))
        except DamagedNode as error:
            logger.error("%s; ignoring it", error)
    return ids


async def _read_children(
    session: Session, parent: str, watch: Watch | None = None
) -> dict[str, tuple[bytes, Stat]]:
    names = await session.children(parent, watch)
    nodes = await session.get_many(f"{parent}/{name}" for name in names)
    return {name: node for name, node in zip(names, nodes, strict=True) if node is not None}
