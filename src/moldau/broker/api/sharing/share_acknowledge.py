"""ShareAcknowledge: a member says what became of records, and fetches none."""

from __future__ import annotations

from typing import Any

from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_groups, on_topics
from moldau.broker.api.sharing.acknowledging import acknowledge
from moldau.broker.api.sharing.parts import SharingParts, handles
from moldau.broker.net.request import Request
from moldau.broker.partitions.refusals import absent
from moldau.broker.security.authorizer import Operation
from moldau.broker.sharing.sessions import FINAL, INITIAL, ShareSessionError
from moldau.cluster.decisions.features import share_version
from moldau.cluster.errors import ClusterError
from moldau.wire.apis import Api
from moldau.wire.errors import Error


def _refused(request: Request, error: ClusterError) -> Answer:
    # Without words, as in Kafka.
    return {"error_code": error.error}


@handles(
    Api.SHARE_ACKNOWLEDGE,
    (1, 2),
    on_groups(Operation.READ, lambda request: (request.body.group_id or "",)),
    on_topics(Operation.READ),
    refused=_refused,
)
async def share_acknowledge(parts: SharingParts, request: Request) -> Answer:
    """Return, for each partition, whether what was said of it is written down."""
    body, sessions = request.body, parts.shares.sessions
    if not share_version(parts.node.state):
        return {"error_code": Error.UNSUPPORTED_VERSION}
    if not body.group_id or not body.member_id:
        return {"error_code": Error.INVALID_REQUEST}
    try:
        if body.share_session_epoch == INITIAL:
            raise ShareSessionError(Error.INVALID_SHARE_SESSION_EPOCH)
        session = sessions.resume(body.group_id, body.member_id, body.share_session_epoch)
    except ShareSessionError as problem:
        return {"error_code": problem.code}
    said = acknowledge(parts, request, body.topics)
    topics: dict[Any, list[dict[str, Any]]] = {}
    leaders: set[int] = set()
    for (topic_id, index), outcome in said.items():
        error, message = await outcome
        answer: dict[str, Any] = {
            "partition_index": index,
            "error_code": error,
            "error_message": message,
        }
        if error is Error.NOT_LEADER_OR_FOLLOWER:
            leader = absent(parts.partitions, topic_id, index)[1]
            if leader is not None:
                answer["current_leader"] = {"leader_id": leader[0], "leader_epoch": leader[1]}
                leaders.add(leader[0])
        topics.setdefault(topic_id, []).append(answer)
    if body.share_session_epoch == FINAL:
        sessions.end(session)
    lock_ms = parts.shares.config(body.group_id).share_record_lock_duration_ms
    return {
        "acquisition_lock_timeout": lock_ms,
        "responses": [
            {"topic_id": topic_id, "partitions": answers} for topic_id, answers in topics.items()
        ],
        "node_endpoints": [
            each for each in parts.brokers.describe(request.context) if each["node_id"] in leaders
        ],
    }
