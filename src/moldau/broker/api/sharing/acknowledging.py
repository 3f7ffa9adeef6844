"""Acknowledgements, as ShareFetch and ShareAcknowledge carry them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from moldau.broker.api.sharing.parts import SharingParts
from moldau.broker.coordination.share.state import ShareKey
from moldau.broker.net.request import Request
from moldau.broker.partitions.refusals import absent
from moldau.broker.security.authorizer import Operation
from moldau.broker.sharing.delivery import AcknowledgedRange, Acknowledgement, Verdict
from moldau.wire.errors import Error
from moldau.wire.primitives import TopicIdPartition

# The id of no topic.
NO_TOPIC = UUID(int=0)
# The version with Renew (KIP-1222).
_RENEWS = 2


def acknowledge(
    parts: SharingParts, request: Request, topics: Iterable[Any]
) -> dict[TopicIdPartition, asyncio.Future[Verdict]]:
    """Take in what a member says; each answer is done when that is written down."""
    said: dict[TopicIdPartition, asyncio.Future[Verdict]] = {}
    for topic in topics:
        for each in topic.partitions:
            if not each.acknowledgement_batches:
                continue
            topic_id = topic.topic_id or NO_TOPIC
            outcome = _acknowledge(parts, request, topic_id, each)
            if isinstance(outcome, Error):
                error, outcome = outcome, parts.node.loop.create_future()
                outcome.set_result(Verdict(error))
            said[topic_id, each.partition_index] = outcome
    return said


def _acknowledge(
    parts: SharingParts, request: Request, topic_id: Any, wanted: Any
) -> Error | asyncio.Future[Verdict]:
    body, partitions = request.body, parts.partitions
    name = partitions.topic_name(topic_id)
    if not name:
        return Error.UNKNOWN_TOPIC_ID
    batches = wanted.acknowledgement_batches
    renews = request.version >= _RENEWS and body.is_renew_ack
    if not is_sound(batches, renews=renews):
        return Error.INVALID_REQUEST
    if not request.may_on_topic(Operation.READ, name):
        return Error.TOPIC_AUTHORIZATION_FAILED
    partition = partitions.get((name, wanted.partition_index))
    if partition is None or not partition.is_leader:
        return absent(partitions, topic_id, wanted.partition_index)[0]
    group = body.group_id
    may_renew = parts.shares.config(group).share_renew_acknowledge_enable
    if not may_renew and any(Acknowledgement.RENEW in each.acknowledge_types for each in batches):
        return Error.INVALID_REQUEST
    shared = parts.shares.find(ShareKey(group, topic_id, wanted.partition_index))
    if shared is None:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    ranges = [
        AcknowledgedRange(each.first_offset, each.last_offset, each.acknowledge_types)
        for each in batches
    ]
    return shared.acknowledge(body.member_id, ranges)


def is_sound(batches: Sequence[Any], *, renews: bool) -> bool:
    """Return whether the ranges are in order and have one kind, or one for each offset."""
    last_kind = Acknowledgement.RENEW if renews else Acknowledgement.REJECT
    before = -1
    for each in batches:
        first, last, kinds = each.first_offset, each.last_offset, each.acknowledge_types
        if first > last or first < before or not kinds:
            return False
        if len(kinds) > 1 and last - first != len(kinds) - 1:
            return False
        if not all(Acknowledgement.GAP <= kind <= last_kind for kind in kinds):
            return False
        before = last
    return True


def has_acknowledgements(topics: Iterable[Any]) -> bool:
    return any(each.acknowledgement_batches for topic in topics for each in topic.partitions)
