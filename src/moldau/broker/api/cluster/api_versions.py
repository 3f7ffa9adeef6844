"""ApiVersions: what this broker speaks. The first question of every client.

Written by hand, like the hot APIs, because it must be answered before kio's schemas are loaded and
also for versions that nobody knows yet.
"""

from __future__ import annotations

import re
from functools import cache
from struct import Struct, error
from typing import NamedTuple

from moldau.broker.api.cluster.parts import ClusterParts, reads
from moldau.broker.api.registry import DECLARED
from moldau.broker.net.connection import Connection
from moldau.broker.net.request import Request
from moldau.cluster.decisions.elections import knows_elr
from moldau.cluster.decisions.features import (
    GROUP_VERSION,
    SHARE_VERSION,
    TRANSACTION_VERSION,
    group_version,
    share_version,
    transaction_version,
)
from moldau.wire.apis import ORIGIN, Api
from moldau.wire.errors import Error
from moldau.wire.primitives import (
    INT16,
    INT64,
    MalformedRequest,
    count,
    read_string,
    skip_tags,
    string,
    uvarint,
)

_VERSIONS = (0, 4)
_ENTRY = Struct(">hhh")
_LEVELS = Struct(">hh")
_FIRST_WITH_NAMES = 3
# KIP-1022: clients of earlier versions fail on a feature that can be off.
_FIRST_WITH_FEATURES_FROM_0 = 4
_ELR_FEATURE = "eligible.leader.replicas.version"
_TRANSACTION_FEATURE = "transaction.version"
_GROUP_FEATURE = "group.version"
_SHARE_FEATURE = "share.version"
_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


@reads(Api.API_VERSIONS, _VERSIONS, any_version=True)
def api_versions(
    parts: ClusterParts, connection: Connection, request: Request, frame: memoryview
) -> bytes:
    """Return the body of the response to an ApiVersions request of any version."""
    version = request.version
    if not _VERSIONS[0] <= version <= _VERSIONS[1]:
        # KIP-511: a v0 body with our own range; the client asks again with a version that we know.
        only = _ENTRY.pack(Api.API_VERSIONS, *_VERSIONS)
        return INT16.pack(Error.UNSUPPORTED_VERSION) + count(1, False) + only
    if version >= _FIRST_WITH_NAMES:
        name, number = _software(frame, request.start)
        if not (_NAME.fullmatch(name) and _NAME.fullmatch(number)):
            return INT16.pack(Error.INVALID_REQUEST) + count(0, True) + bytes(5)
        if name == ORIGIN:
            address = parts.origins.address_in(number)
            if address is not None:
                connection.context.ask_for(address)
    to_brokers = request.context.is_inter_broker and parts.node.is_clustered
    state = parts.node.state
    finalized = Finalized(
        knows_elr(state), transaction_version(state), group_version(state), share_version(state)
    )
    return _encode(version, finalized, to_brokers)


def _software(frame: memoryview, position: int) -> tuple[str, str]:
    """Return the name and version of the client's software (KIP-511)."""
    try:
        name, position = read_string(frame, position, True)
        number, position = read_string(frame, position, True)
        skip_tags(frame, position)
    except (error, IndexError):
        raise MalformedRequest("the request ends before the client's name and version") from None
    if name is None or number is None:
        raise MalformedRequest("the client's name or version is null")
    return name, number


class Finalized(NamedTuple):
    """The levels of features that every broker knows."""

    elr: int
    transactions: int
    groups: int
    shares: int


@cache
def _encode(version: int, finalized: Finalized, to_brokers: bool) -> bytes:
    compact = version >= _FIRST_WITH_NAMES
    ranges = served_versions(to_brokers=to_brokers)
    body = INT16.pack(Error.NONE) + count(len(ranges), compact)
    for api, (first, last) in sorted(ranges.items()):
        body += _ENTRY.pack(api, first, last) + (b"\x00" if compact else b"")
    if version >= 1:
        body += bytes(4)
    return body + (_features(version, finalized) if compact else b"")


def _features(version: int, levels: Finalized) -> bytes:
    """Return the tagged fields: the features that are supported, an epoch, and the finalized
    ones."""
    supported = {
        _ELR_FEATURE: (0, 1),
        _TRANSACTION_FEATURE: (0, TRANSACTION_VERSION),
        _GROUP_FEATURE: (0, GROUP_VERSION),
        _SHARE_FEATURE: (0, SHARE_VERSION),
    }
    found = zip(supported, levels, strict=True)
    finalized = {name: (int(level), int(level)) for name, level in found if level}
    tags = []
    if version >= _FIRST_WITH_FEATURES_FROM_0:
        tags.append((0, _levels(supported)))
    # It goes up, as an epoch must, with the changes that there can be.
    tags.append((1, INT64.pack(len(finalized))))
    if finalized:
        tags.append((2, _levels(finalized)))
    encoded = [uvarint(tag) + uvarint(len(value)) + value for tag, value in tags]
    return uvarint(len(tags)) + b"".join(encoded)


def _levels(features: dict[str, tuple[int, int]]) -> bytes:
    entries = (string(name, True) + _LEVELS.pack(*levels) for name, levels in features.items())
    return count(len(features), True) + b"".join(entry + b"\x00" for entry in entries)


def served_versions(*, to_brokers: bool = False) -> dict[int, tuple[int, int]]:
    """Return the APIs that this broker answers, with the first and last version of each."""
    ranges = {
        api: (declared.first, declared.last)
        for api, declared in DECLARED.items()
        if to_brokers or not declared.inter_broker
    }
    # KAFKA-18659: librdkafka before 2.11 compresses only for brokers that know Produce v0.
    ranges[Api.PRODUCE] = (0, DECLARED[Api.PRODUCE].last)
    return ranges
