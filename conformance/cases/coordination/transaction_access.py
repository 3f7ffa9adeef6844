"""Transactional APIs with no right, each right, a prefixed one, a deny, a wrong host.

The transactional id is the name of the group.
"""

from __future__ import annotations

import re
from typing import Any

from conformance.cases.access import register
from conformance.cases.access_questions import Question, Right
from conformance.session import Session
from moldau.wire.acls import CLUSTER_NAME, Operation, Resource
from moldau.wire.apis import Api

_O = Operation
# A producer that the coordinator does not know by this transactional id.
_PRODUCER: dict[str, Any] = {"producer_id": 7_777_777, "producer_epoch": 0}


def _id(operation: Operation, id: str) -> Right:
    return operation, Resource.TRANSACTIONAL_ID, id


def _on_cluster(operation: Operation) -> list[Right]:
    return [(operation, Resource.CLUSTER, CLUSTER_NAME)]


def _begin(s: Session, topic: str, id: str) -> None:
    """Have a coordinator, and a producer of this transactional id."""
    s.quietly(Api.FIND_COORDINATOR, 1, key=id, key_type=1)

    def begun() -> bool:
        answer = s.quietly(Api.INIT_PRODUCER_ID, 1, transactional_id=id, transaction_timeout=60_000)
        return int(answer.error_code) == 0

    s.until(begun, "transaction coordinator")


def _batch(s: Session) -> bytes:
    return bytes(s.batch(b"x", **_PRODUCER, base_sequence=0, is_transactional=True))


def _marker(s: Session, topic: str, group: str) -> dict[str, Any]:
    topics = [{"name": topic, "partition_indexes": [0]}]
    marker = {**_PRODUCER, "transaction_result": False, "coordinator_epoch": 0, "topics": topics}
    return {"markers": [marker]}


register(
    Api.INIT_PRODUCER_ID,
    "init_producer_id_of_a_transaction",
    Question(
        lambda s, t, g: {
            "transactional_id": g,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        },
        lambda t, g: [_id(_O.WRITE, g)],
        last=5,
        prepare=_begin,
    ),
)
register(
    Api.FIND_COORDINATOR,
    "find_coordinator_of_a_transaction",
    Question(
        lambda s, t, g: {"key": g, "key_type": 1, "coordinator_keys": [g]},
        lambda t, g: [_id(_O.DESCRIBE, g)],
        prepare=_begin,
    ),
)
register(
    Api.PRODUCE,
    "produce_in_a_transaction",
    Question(
        lambda s, t, g: {
            "transactional_id": g,
            "acks": -1,
            "timeout": 5000,
            "topic_data": [{"name": t, "partition_data": [{"index": 0, "records": _batch(s)}]}],
        },
        lambda t, g: [_id(_O.WRITE, g), (_O.WRITE, Resource.TOPIC, t)],
        last=11,
        prepare=_begin,
    ),
)
register(
    Api.ADD_PARTITIONS_TO_TXN,
    "add_partitions_to_txn",
    Question(
        lambda s, t, g: {
            "v3_and_below_transactional_id": g,
            **{f"v3_and_below_{key}": value for key, value in _PRODUCER.items()},
            "v3_and_below_topics": [{"name": t, "partitions": [0]}],
        },
        lambda t, g: [_id(_O.WRITE, g), (_O.WRITE, Resource.TOPIC, t)],
        last=3,
        prepare=_begin,
    ),
)
register(
    Api.ADD_PARTITIONS_TO_TXN,
    "add_partitions_to_txn_as_a_broker",
    Question(
        lambda s, t, g: {
            "transactions": [
                {
                    "transactional_id": g,
                    **_PRODUCER,
                    "verify_only": True,
                    "topics": [{"name": t, "partitions": [0]}],
                }
            ]
        },
        lambda t, g: _on_cluster(_O.CLUSTER_ACTION),
        prepare=_begin,
    ),
)
register(
    Api.ADD_OFFSETS_TO_TXN,
    "add_offsets_to_txn",
    Question(
        lambda s, t, g: {"transactional_id": g, **_PRODUCER, "group_id": g},
        lambda t, g: [_id(_O.WRITE, g), (_O.READ, Resource.GROUP, g)],
        prepare=_begin,
    ),
)
register(
    Api.TXN_OFFSET_COMMIT,
    "txn_offset_commit",
    Question(
        lambda s, t, g: {
            "transactional_id": g,
            "group_id": g,
            **_PRODUCER,
            "topics": [{"name": t, "partitions": [{"partition_index": 0, "committed_offset": 1}]}],
        },
        lambda t, g: [
            _id(_O.WRITE, g),
            (_O.READ, Resource.GROUP, g),
            (_O.READ, Resource.TOPIC, t),
        ],
        prepare=_begin,
    ),
)
register(
    Api.END_TXN,
    "end_txn",
    Question(
        lambda s, t, g: {"transactional_id": g, **_PRODUCER, "committed": True},
        lambda t, g: [_id(_O.WRITE, g)],
        prepare=_begin,
    ),
)
register(
    Api.WRITE_TXN_MARKERS,
    "write_txn_markers_as_a_tool",
    Question(_marker, lambda t, g: _on_cluster(_O.ALTER)),
)
register(
    Api.WRITE_TXN_MARKERS,
    "write_txn_markers_as_a_broker",
    Question(_marker, lambda t, g: _on_cluster(_O.CLUSTER_ACTION)),
)
register(
    Api.DESCRIBE_PRODUCERS,
    "describe_producers",
    Question(
        lambda s, t, g: {"topics": [{"name": t, "partition_indexes": [0]}]},
        lambda t, g: [(_O.READ, Resource.TOPIC, t)],
    ),
)
register(
    Api.DESCRIBE_TRANSACTIONS,
    "describe_transactions",
    Question(
        lambda s, t, g: {"transactional_ids": [g]},
        lambda t, g: [_id(_O.DESCRIBE, g)],
        prepare=_begin,
    ),
)
register(
    Api.LIST_TRANSACTIONS,
    "list_transactions",
    Question(
        lambda s, t, g: {
            "state_filters": [],
            "producer_id_filters": [],
            "duration_filter": -1,
            "transactional_id_pattern": re.escape(g),
        },
        lambda t, g: [_id(_O.DESCRIBE, g)],
        # Before that, those of other cases are listed as well.
        first=2,
        prepare=_begin,
    ),
)
