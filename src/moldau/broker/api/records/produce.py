"""Produce: appends record batches to partitions.

Appends are staged while the frames of one receive are handled, and the response settled after the
broker has written them all. A write with acks=all is answered when the high watermark has passed
it. A request for very many partitions is put aside and appended a few at a time.
"""

from __future__ import annotations

from moldau.broker.api.records.appending import Denied, append_all
from moldau.broker.api.records.parts import RecordParts, reads
from moldau.broker.api.records.produce_response import ProduceResponse
from moldau.broker.api.records.produce_slices import SlicedProduce, append_in_slices, is_for_many
from moldau.broker.api.rights import on_topics, on_transactional_ids
from moldau.broker.net.connection import Connection
from moldau.broker.net.request import Request
from moldau.broker.partitions.large_writes import LARGE
from moldau.broker.partitions.record_checks import (
    CheckedProduce,
    Checks,
    begin_checks,
    prepare,
)
from moldau.broker.partitions.verification import Verified, begin_verification
from moldau.broker.security.authorizer import Grants, Operation, Resource
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.primitives import TopicKey
from moldau.wire.produce import ProduceRequest, produce_codec

_WRITE = Operation.WRITE
_NOTHING: Denied = {}
# The topics that a connection is known to write to; all are forgotten when there are more.
_MOST_REMEMBERED = 1000


@reads(
    Api.PRODUCE,
    (3, 13),
    on_transactional_ids(Operation.WRITE),
    on_topics(Operation.WRITE),
    stages=True,
)
def produce(
    parts: RecordParts, connection: Connection, request: Request, frame: memoryview
) -> None:
    """Stage what the request appends and take its place among the connection's answers."""
    version = request.version
    prepared: CheckedProduce | SlicedProduce | None = connection.prepared
    if isinstance(prepared, SlicedProduce):
        prepared.response.request = request
        _stage(connection, prepared.response)
        return
    checked: CheckedProduce | None = None
    if request.size > parts.partitions.prepares_above:
        checked = prepared
        if checked is None:
            checked, is_done = begin_checks(parts.partitions, version, request.start, frame)
            if not is_done or request.size > LARGE or checked.must_wait(parts.partitions):
                _put_aside(parts, connection, request, _denied(parts, request, checked.request))
                return
    codec = produce_codec(version)
    checks: Checks | None = None
    if checked is None:
        wanted = codec.decode(frame, request.start)
    else:
        wanted, checks = checked.request, checked.checks
    denied: Denied = _NOTHING
    if (authorizer := request.authorizer) is not None:
        # A hundred writes may come at once, to the same topic: that is asked for once.
        grants, topics = request.context.grants, wanted.topics
        if (
            grants is None
            or grants.rules is not authorizer.rules
            or len(topics) != 1
            or topics[0][0] not in grants.writable
            or wanted.transactional_id is not None
        ):
            denied = _denied(parts, request, wanted)
    verified: Verified | None = None
    if wanted.transactional_id is not None and parts.partitions.verifier is not None:
        checked = checked or prepared
        verified = None if checked is None else checked.verified
        if verified is None:
            verified = begin_verification(parts.partitions, wanted.without(denied), version)
            if verified.guards:
                _put_aside(parts, connection, request, denied)
                return
    if prepared is None and is_for_many(request.size, wanted):
        _put_aside(parts, connection, request, denied)
        return
    response = ProduceResponse(connection, request, codec, wanted)
    append_all(parts, response, wanted, denied, checks, verified)
    _stage(connection, response)


def _stage(connection: Connection, response: ProduceResponse) -> None:
    connection.reserve(response)
    connection.staged.append(response)


def _denied(parts: RecordParts, request: Request, wanted: ProduceRequest) -> Denied:
    """Return the topics that the sender may not write to, with the error for each."""
    named = wanted.transactional_id
    if named is not None and not request.may(_WRITE, Resource.TRANSACTIONAL_ID, named):
        error = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return {key: error for key, _ in wanted.topics}
    denied = {}
    for key, _ in wanted.topics:
        topic = parts.partitions.topic_name(key)
        # An id that no topic has is refused as such.
        if topic:
            if request.may_on_topic(_WRITE, topic):
                _remember(request, key)
            else:
                denied[key] = Error.TOPIC_AUTHORIZATION_FAILED
    return denied


def _remember(request: Request, key: TopicKey) -> None:
    """Remember that the sender may write to a topic, until rules change."""
    authorizer, context = request.authorizer, request.context
    if authorizer is None or not authorizer.may_remember:
        return
    grants = context.grants
    if (
        grants is None
        or grants.rules is not authorizer.rules
        or len(grants.writable) >= _MOST_REMEMBERED
    ):
        grants = context.grants = Grants(authorizer.rules, set())
    grants.writable.add(key)


def _put_aside(
    parts: RecordParts, connection: Connection, request: Request, denied: Denied
) -> None:
    """Handle the request again when what it has to wait for is done."""

    async def work(frame: memoryview) -> CheckedProduce | SlicedProduce:
        checked = await prepare(
            parts.partitions, request.version, request.start, frame, denied=denied
        )
        if not is_for_many(request.size, checked.request):
            return checked
        try:
            return await append_in_slices(parts, connection, request, checked, denied)
        except BaseException:
            checked.end()
            raise

    connection.put_aside(work)
