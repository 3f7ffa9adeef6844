"""APIs of share groups with no right, each right, a prefixed one, a deny, a wrong host."""

from __future__ import annotations

from typing import Any

from conformance.cases.access import register
from conformance.cases.access_questions import Question, Rights
from conformance.cases.coordination.membership import ready
from conformance.session import Session
from moldau.broker.coordination.share.state import topic_id_text
from moldau.wire.acls import CLUSTER_NAME, Operation, Resource
from moldau.wire.apis import Api

_O = Operation
_MEMBER = "m"


def _rights(group: Operation, topic: Operation) -> Rights:
    return lambda t, g: [(group, Resource.GROUP, g), (topic, Resource.TOPIC, t)]


def _beat(s: Session, group: str, epoch: int, topics: list[str] | None) -> Any:
    return s.quietly(
        Api.SHARE_GROUP_HEARTBEAT,
        1,
        group_id=group,
        member_id=_MEMBER,
        member_epoch=epoch,
        rack_id=None,
        subscribed_topic_names=topics,
    )


def _group(s: Session, topic: str, group: str) -> None:
    """Have a share group that has read the topic, and has no member any more."""
    ready(s)
    epoch = 0

    def is_in() -> bool:
        nonlocal epoch
        answer = _beat(s, group, epoch, None if epoch else [topic])
        if int(answer.error_code) != 0:
            return False
        epoch = answer.member_epoch
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    s.until(is_in, "an assignment")
    _beat(s, group, -1, None)


def _ready(s: Session, topic: str, group: str) -> None:
    ready(s)


def _session(s: Session, topic: str, group: str) -> dict[str, Any]:
    """What opens a session, with one partition."""
    partition = {"partition_index": 0, "acknowledgement_batches": []}
    return {
        "group_id": group,
        "member_id": _MEMBER,
        "share_session_epoch": 0,
        "topics": [{"topic_id": s.topic_id(topic), "partitions": [partition]}],
        "max_wait": 500,
        "min_bytes": 1,
        "max_bytes": 1000,
        "max_records": 10,
        "batch_size": 10,
        "forgotten_topics_data": [],
    }


def _shared(s: Session, topic: str, group: str) -> None:
    """Have a share group whose share of the partition is there, as a super user has seen."""
    _group(s, topic, group)

    def is_there() -> bool:
        answer = s.quietly(Api.SHARE_FETCH, 1, **_session(s, topic, group))
        return bool(answer.responses)

    s.until(is_there, "a share of the partition")


def _acknowledgement(s: Session, topic: str, group: str) -> dict[str, Any]:
    """What is said in a session, which a super user opened: rights are asked at each request."""
    opened = _session(s, topic, group)
    s.quietly(Api.SHARE_FETCH, 1, **opened)
    said = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
    partition = {"partition_index": 0, "acknowledgement_batches": said}
    return {
        "group_id": group,
        "member_id": _MEMBER,
        "share_session_epoch": 1,
        "topics": [{"topic_id": s.topic_id(topic), "partitions": [partition]}],
    }


def _state(**more: Any) -> Any:
    """What is asked of the state of a partition."""

    def values(s: Session, topic: str, group: str) -> dict[str, Any]:
        partition = {"partition": 0, **more}
        topics = [{"topic_id": s.topic_id(topic), "partitions": [partition]}]
        return {"group_id": group, "topics": topics}

    return values


def _coordinator(s: Session, topic: str, group: str) -> None:
    """Have a coordinator of the partition's state that is loaded."""
    key = f"{group}:{topic_id_text(s.topic_id(topic))}:0"
    summary = _state(leader_epoch=0)(s, topic, group)

    def there() -> bool:
        found = s.quietly(Api.FIND_COORDINATOR, 6, key_type=2, coordinator_keys=[key])
        if int(found.coordinators[0].error_code) != 0:
            return False
        answer = s.quietly(Api.READ_SHARE_GROUP_STATE_SUMMARY, 0, **summary)
        return int(answer.results[0].partitions[0].error_code) not in (14, 15, 16)

    s.until(there, "share coordinator")


register(
    Api.SHARE_GROUP_HEARTBEAT,
    "share_group_heartbeat",
    Question(
        lambda s, t, g: {
            "group_id": g,
            "member_id": _MEMBER,
            "member_epoch": -1,
            "rack_id": None,
            "subscribed_topic_names": [t],
        },
        _rights(_O.READ, _O.DESCRIBE),
        prepare=_ready,
    ),
)
register(
    Api.SHARE_GROUP_DESCRIBE,
    "share_group_describe",
    Question(
        lambda s, t, g: {"group_ids": [g], "include_authorized_operations": True},
        lambda t, g: [(_O.DESCRIBE, Resource.GROUP, g)],
        prepare=_group,
    ),
)
register(
    Api.SHARE_FETCH, "share_fetch", Question(_session, _rights(_O.READ, _O.READ), prepare=_shared)
)
register(
    Api.SHARE_ACKNOWLEDGE,
    "share_acknowledge",
    Question(_acknowledgement, _rights(_O.READ, _O.READ), prepare=_shared),
)
register(
    Api.DESCRIBE_SHARE_GROUP_OFFSETS,
    "describe_share_group_offsets",
    Question(
        lambda s, t, g: {
            "groups": [{"group_id": g, "topics": [{"topic_name": t, "partitions": [0]}]}]
        },
        _rights(_O.DESCRIBE, _O.DESCRIBE),
        prepare=_group,
    ),
)
register(
    Api.ALTER_SHARE_GROUP_OFFSETS,
    "alter_share_group_offsets",
    Question(
        lambda s, t, g: {
            "group_id": g,
            "topics": [
                {"topic_name": t, "partitions": [{"partition_index": 0, "start_offset": 0}]}
            ],
        },
        _rights(_O.READ, _O.READ),
        prepare=_group,
    ),
)
register(
    Api.DELETE_SHARE_GROUP_OFFSETS,
    "delete_share_group_offsets",
    Question(
        lambda s, t, g: {"group_id": g, "topics": [{"topic_name": t}]},
        _rights(_O.DELETE, _O.READ),
        prepare=_group,
    ),
)
_BATCHES: dict[str, Any] = {"state_epoch": 0, "start_offset": -1, "state_batches": []}
for _api, _values in (
    (Api.INITIALIZE_SHARE_GROUP_STATE, _state(state_epoch=0, start_offset=0)),
    (Api.READ_SHARE_GROUP_STATE, _state(leader_epoch=0)),
    (
        Api.WRITE_SHARE_GROUP_STATE,
        _state(leader_epoch=0, delivery_complete_count=-1, **_BATCHES),
    ),
    (Api.READ_SHARE_GROUP_STATE_SUMMARY, _state(leader_epoch=0)),
    (Api.DELETE_SHARE_GROUP_STATE, _state()),
):
    register(
        _api,
        _api.name.lower(),
        Question(
            _values,
            lambda t, g: [(_O.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)],
            prepare=_coordinator,
        ),
    )
