"""TxnOffsetCommit: offsets of a group that count when a transaction is committed."""

from __future__ import annotations

from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_groups, on_topics, on_transactional_ids, the_group
from moldau.broker.api.transactions.parts import TransactionParts, handles
from moldau.broker.coordination.groups.group import Commit
from moldau.broker.coordination.groups.records import CommittedOffset
from moldau.broker.coordination.journal import Transactional
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# KIP-890: the client knows that it may have to abort; since then, too, that offsets are added.
_FIRST_WITH_ABORTABLE = 4
_FIRST_THAT_ADDS = 5

# The client asks the same group coordinator again, which asks the transaction's.
_TO_BE_RETRIED = frozenset(
    (
        Error.NETWORK_EXCEPTION,
        Error.NOT_COORDINATOR,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
    )
)


@handles(
    Api.TXN_OFFSET_COMMIT,
    (0, 5),
    on_transactional_ids(Operation.WRITE, lambda request: (request.body.transactional_id,)),
    on_groups(Operation.READ, the_group),
    on_topics(Operation.READ),
    refused=lambda request, error: _answer(request, error.error, {}),
)
async def txn_offset_commit(parts: TransactionParts, request: Request) -> Answer:
    """Answered once the offsets are on every in-sync replica, to wait there for the marker."""
    committed, refused = _offsets(parts, request)
    error = Error.NONE
    if committed:
        error = await _stage(parts, request, committed)
    return _answer(request, error, refused)


def _answer(request: Request, error: Error, refused: dict[TopicPartition, Error]) -> Answer:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "error_code": refused.get((topic.name, each.partition_index), error),
                    }
                    for each in topic.partitions
                ],
            }
            for topic in request.body.topics
        ]
    }


def _offsets(
    parts: TransactionParts, request: Request
) -> tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition, Error]]:
    now_ms, longest = parts.node.now_ms(), parts.node.settings.offset_metadata_max_bytes
    committed: dict[TopicPartition, CommittedOffset] = {}
    refused: dict[TopicPartition, Error] = {}
    for topic in request.body.topics:
        may_read = request.may_on_topic(Operation.READ, topic.name)
        for each in topic.partitions:
            key = (topic.name, int(each.partition_index))
            metadata = each.committed_metadata or ""
            if not may_read:
                refused[key] = Error.TOPIC_AUTHORIZATION_FAILED
            elif parts.node.state.partition(*key) is None:
                refused[key] = Error.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata.encode()) > longest:
                refused[key] = Error.OFFSET_METADATA_TOO_LARGE
            else:
                epoch = getattr(each, "committed_leader_epoch", -1)
                offset = each.committed_offset
                committed[key] = CommittedOffset(offset, epoch, metadata, now_ms)
    return committed, refused


async def _stage(
    parts: TransactionParts, request: Request, committed: dict[TopicPartition, CommittedOffset]
) -> Error:
    """Make sure that the transaction is open and knows of the offsets, then write them."""
    body, offsets = request.body, parts.groups.shards
    if not body.group_id:
        return Error.INVALID_GROUP_ID
    place = (offsets.topic.name, offsets.partition_of(body.group_id))
    partition, verifier = parts.partitions.get(place), parts.partitions.verifier
    if partition is None or not partition.is_leader or verifier is None:
        return Error.NOT_COORDINATOR
    producers = partition.log.producers
    producer_id, epoch = body.producer_id, body.producer_epoch
    guard = None
    if not producers.is_open(producer_id, epoch):
        adds = request.version >= _FIRST_THAT_ADDS
        guard = producers.verifications.begin(producer_id, epoch, -1, parts.node.now_ms(), adds)
        answers = await verifier.verify(
            body.transactional_id, producer_id, epoch, [place], adds=adds
        )
        error = answers.get(place, Error.NONE)
        if error:
            return _in_words_of(request.version, error)
    return await parts.groups.stage(
        body.group_id,
        Commit(
            getattr(body, "member_id", ""),
            getattr(body, "group_instance_id", None),
            getattr(body, "generation_id", -1),
            committed.keys(),
            request.version,
            is_transactional=True,
        ),
        Transactional(producer_id, epoch, guard),
        committed,
    )


def _in_words_of(version: int, error: Error) -> Error:
    if error in _TO_BE_RETRIED:
        return Error.COORDINATOR_LOAD_IN_PROGRESS
    if error is Error.PRODUCER_FENCED:
        return Error.INVALID_PRODUCER_EPOCH
    if error is Error.TRANSACTION_ABORTABLE and version < _FIRST_WITH_ABORTABLE:
        return Error.INVALID_TXN_STATE
    return error
