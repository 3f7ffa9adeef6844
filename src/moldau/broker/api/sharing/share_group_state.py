"""InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState and
ReadShareGroupStateSummary: what leaders of shared partitions, and coordinators of groups, ask the
share coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import FAILED, on_cluster
from moldau.broker.api.sharing.acknowledging import NO_TOPIC
from moldau.broker.api.sharing.parts import SharingParts, handles
from moldau.broker.coordination.share.batches import StateBatch
from moldau.broker.coordination.share.coordinator import Found, Refused
from moldau.broker.coordination.share.state import UNKNOWN, ShareKey, Update
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation, Resource
from moldau.cluster.errors import ClusterError
from moldau.wire.apis import Api

_DENIED = Refused(*FAILED[Resource.CLUSTER])
Outcome = Found | Refused | None


def refused(request: Request, error: ClusterError) -> Answer:
    """Answer who is no broker."""
    return _answer(request, lambda each: _DENIED)


_RIGHT = on_cluster(Operation.CLUSTER_ACTION)


@handles(Api.INITIALIZE_SHARE_GROUP_STATE, (0, 0), _RIGHT, refused=refused)
async def initialize(parts: SharingParts, request: Request) -> Answer:
    """Begin states, or begin them anew."""
    return await _each(
        request,
        lambda key, each: parts.shares.states.initialize(key, each.state_epoch, each.start_offset),
    )


@handles(Api.READ_SHARE_GROUP_STATE, (0, 0), _RIGHT, refused=refused)
async def read(parts: SharingParts, request: Request) -> Answer:
    """Return states to the leaders of their partitions."""
    return await _each(request, lambda key, each: parts.shares.states.read(key, each.leader_epoch))


@handles(Api.WRITE_SHARE_GROUP_STATE, (0, 1), _RIGHT, refused=refused)
async def write(parts: SharingParts, request: Request) -> Answer:
    """Take in what has changed."""

    def take(key: ShareKey, each: Any) -> Awaitable[Outcome]:
        batches = tuple(
            StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for b in each.state_batches
        )
        finished = getattr(each, "delivery_complete_count", UNKNOWN)
        update = Update(each.leader_epoch, each.start_offset, finished, batches)
        return parts.shares.states.write(key, each.state_epoch, update)

    return await _each(request, take)


@handles(Api.DELETE_SHARE_GROUP_STATE, (0, 0), _RIGHT, refused=refused)
async def delete(parts: SharingParts, request: Request) -> Answer:
    """Delete states."""
    return await _each(request, lambda key, each: parts.shares.states.delete(key))


@handles(Api.READ_SHARE_GROUP_STATE_SUMMARY, (0, 1), _RIGHT, refused=refused)
async def summary(parts: SharingParts, request: Request) -> Answer:
    """Return states without their batches."""

    async def find(key: ShareKey, each: Any) -> Outcome:
        return parts.shares.states.summary(key)

    return await _each(request, find)


async def _each(request: Request, ask: Callable[[ShareKey, Any], Awaitable[Outcome]]) -> Answer:
    """Ask for every partition of a request at once."""
    group = request.body.group_id
    wanted = [
        (ShareKey(group, topic.topic_id or NO_TOPIC, each.partition), each)
        for topic in request.body.topics
        for each in topic.partitions
    ]
    outcomes = iter(await asyncio.gather(*(ask(key, each) for key, each in wanted)))
    return _answer(request, lambda each: next(outcomes))


def _answer(request: Request, outcome_of: Callable[[Any], Outcome]) -> Answer:
    return {
        "results": [
            {
                "topic_id": topic.topic_id,
                "partitions": [
                    {"partition": each.partition, **_told(request.api, outcome_of(each))}
                    for each in topic.partitions
                ],
            }
            for topic in request.body.topics
        ]
    }


def _told(api: int, outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Refused):
        return {"error_code": outcome.error, "error_message": outcome.message}
    if outcome is None:
        return {}
    told: dict[str, Any] = {"state_epoch": outcome.state_epoch, "start_offset": outcome.start}
    if api == Api.READ_SHARE_GROUP_STATE:
        told["state_batches"] = [
            {
                "first_offset": batch.first,
                "last_offset": batch.last,
                "delivery_state": batch.state,
                "delivery_count": batch.deliveries,
            }
            for batch in outcome.batches
        ]
    else:
        told["leader_epoch"] = outcome.leader_epoch
        told["delivery_complete_count"] = outcome.finished
    return told
