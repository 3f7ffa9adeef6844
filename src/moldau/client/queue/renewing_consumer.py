"""Renewing consumers: members of share groups on our own protocol, which can renew locks.

librdkafka's ShareConsumer cannot (KIP-1222). This one has the methods of it that a queue needs, and
`renew`. It takes from one leader at a time, so that no more is locked than was asked for.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from moldau.client.brokers import addresses, security_of
from moldau.client.connection import by_kafka_name
from moldau.client.errors import ClientError
from moldau.client.queue.leader_session import LeaderSession, Word, Words
from moldau.client.queue.membership import Membership
from moldau.client.queue.taken_message import TakenMessage, records_in
from moldau.peer.cluster import Cluster
from moldau.peer.errors import PeerError, Refused, name_of
from moldau.peer.retries import PeerSettings
from moldau.peer.view import ClusterView, Node
from moldau.records.batch import BatchError
from moldau.security.client import is_security
from moldau.settings import InvalidSetting
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.primitives import TopicIdPartition

logger = logging.getLogger("moldau.client")

_CLIENT_ID = "moldau-queue"
_REQUEST_S = 10.0
# With several leaders, the longest that one is waited for: others may have something meanwhile.
_TURN_S = 0.1
# Before leaders are looked for again.
_PAUSE_S = 0.1
# The version of ShareAcknowledge with Renew.
_RENEWS = 2
_KNOWN = ("bootstrap.servers", "client.id")
_SESSION_IS_OVER = (
    Error.SHARE_SESSION_NOT_FOUND,
    Error.INVALID_SHARE_SESSION_EPOCH,
    Error.SHARE_SESSION_LIMIT_REACHED,
)

Told = Callable[[Any, Any], None]
Verdicts = dict[TopicIdPartition, int]


class RenewingConsumer:
    """A member of a share group. `told` hears of acknowledgements that a leader did not take.

    Any thread may call it; one waits for the other.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        ahead: int,
        given: Mapping[str, Any],
        told: Told,
    ) -> None:
        settings = _settings(given)
        self._ahead = ahead
        self._told = told
        self._cluster = Cluster(addresses(bootstrap), settings)
        self._membership = Membership(Cluster(addresses(bootstrap), settings), group, topics)
        self._topics = list(topics)
        self._names: dict[UUID, str] = {}
        self._leaders: dict[TopicIdPartition, Node] = {}
        self._has_old_leaders = True
        self._sessions: dict[Node, LeaderSession] = {}
        # What is to be said of records.
        self._words: dict[TopicIdPartition, dict[int, Word]] = {}
        self._lock = threading.Lock()
        # Whoever lets go of it without closing it is a member no more.
        weakref.finalize(self, self._membership.end)
        self._membership.start()

    # What a queue needs

    def poll(self, wait_s: float) -> list[TakenMessage]:
        """Say what is to be said, and take messages; ClientError if the group refuses."""
        if not self._membership.assigned:
            self._membership.wait(wait_s)
        with self._lock:
            failed = self._membership.failed
            if failed is not None:
                raise _error(failed)
            self._report(self._say(self._words))
            self._words = {}
            return self._take(wait_s)

    def acknowledge(self, message: TakenMessage, word: int) -> None:
        """Have it said with the next `poll` or `commit_sync`."""
        with self._lock:
            self._words.setdefault(_place(message), {})[message.offset()] = Word(word)

    def commit_sync(self, timeout: float) -> dict[TopicPartition, KafkaException | None]:
        """Say what is to be said, and return what the leaders answered, each within the time that a
        request may take."""
        with self._lock:
            verdicts = self._say(self._words)
            self._words = {}
        return self._described(verdicts)

    def renew(self, message: TakenMessage) -> None:
        """Begin the lock of a message anew; ClientError if this member has it no more."""
        with self._lock:
            place, offset = _place(message), message.offset()
            [code] = self._say({place: {offset: Word.RENEW}}).values()
        if code:
            text = f"{message.topic()} [{message.partition()}] at {offset} cannot be renewed"
            raise ClientError(f"{text}: {name_of(code)}", KafkaError(code))

    def close(self) -> None:
        """Say what is to be said, give back the rest, and leave the group."""
        try:
            with self._lock:
                self._report(self._say(self._words, is_last=True))
        finally:
            self._cluster.close()
            self._membership.leave()

    # Taking

    def _take(self, wait_s: float) -> list[TakenMessage]:
        deadline = time.monotonic() + wait_s
        by_leader = self._partitions_by_leader()
        nodes = list(by_leader)
        for number, node in enumerate(nodes):
            is_last = number == len(nodes) - 1
            turn_s = max(deadline - time.monotonic(), 0.0) if is_last else 0.0
            if len(nodes) > 1:
                turn_s = min(turn_s, _TURN_S)
            taken = self._fetch(node, by_leader[node], int(turn_s * 1000))
            # Another leader is the first to be asked the next time.
            self._sessions[node] = self._sessions.pop(node)
            if taken:
                return taken
        if self._has_old_leaders or not nodes:
            time.sleep(min(_PAUSE_S, max(deadline - time.monotonic(), 0.0)))
        return []

    def _partitions_by_leader(self) -> dict[Node, set[TopicIdPartition]]:
        """Return what to fetch, the leader first that was asked longest ago."""
        assigned = {
            (id, index) for id, indices in self._membership.assigned.items() for index in indices
        }
        if self._has_old_leaders or not assigned <= self._leaders.keys():
            self._find_leaders()
        wanted: dict[Node, set[TopicIdPartition]] = {}
        for place in assigned & self._leaders.keys():
            wanted.setdefault(self._leaders[place], set()).add(place)
        for node in wanted:
            if node not in self._sessions:
                self._sessions[node] = LeaderSession(self._membership.group, self._membership.id)
        return {node: wanted[node] for node in self._sessions if node in wanted}

    def _find_leaders(self) -> None:
        values = {
            "topics": [{"name": name} for name in self._topics],
            "allow_auto_topic_creation": False,
        }
        try:
            view = ClusterView.of(self._cluster.some_broker().ask(Api.METADATA, values))
        except PeerError as problem:
            logger.info("could not look up leaders: %s", problem)
            return
        self._names |= {topic.id: topic.name for topic in view.topics.values() if topic.id}
        self._leaders = {
            (topic.id, index): view.nodes[leader.node_id]
            for topic in view.topics.values()
            for index, leader in topic.leaders.items()
            if topic.id is not None and leader.node_id in view.nodes
        }
        self._has_old_leaders = False

    def _fetch(self, node: Node, wanted: set[TopicIdPartition], wait_ms: int) -> list[TakenMessage]:
        session = self._sessions[node]
        answer = self._ask(node, Api.SHARE_FETCH, session.fetch(wanted, self._ahead, wait_ms))
        if answer is None:
            return []
        taken: list[TakenMessage] = []
        refused: Refused | None = None
        for topic in answer.responses:
            for part in topic.partitions:
                place = (topic.topic_id, int(part.partition_index))
                if part.error_code:
                    refused = self._refused(place, part) or refused
                elif part.acquired_records:
                    taken += self._messages(place, part)
        if refused is not None and not taken:
            raise _error(refused)
        return taken

    def _messages(self, place: TopicIdPartition, part: Any) -> list[TakenMessage]:
        """Return the records that were acquired; of offsets that have none, say so."""
        deliveries = {
            offset: int(each.delivery_count)
            for each in part.acquired_records
            for offset in range(each.first_offset, each.last_offset + 1)
        }
        name = self._names[place[0]]
        taken: list[TakenMessage] = []
        rest = Word.GAP
        try:
            for record, has_append_time in records_in(bytes(part.records or b"")):
                count = deliveries.pop(record.offset, 0)
                if count:
                    taken.append(TakenMessage(name, *place, record, has_append_time, count))
        except BatchError as problem:
            # Whoever gets them next may be luckier; in the end they are out of tries.
            logger.warning("%s [%d] has records that cannot be read: %s", name, place[1], problem)
            rest = Word.RELEASE
        if deliveries:
            self._words.setdefault(place, {}).update(dict.fromkeys(deliveries, rest))
        return taken

    def _refused(self, place: TopicIdPartition, part: Any) -> Refused | None:
        """Return why nothing can be had of a partition; None if another attempt may succeed."""
        refused = Refused(part.error_code, f"{self._names[place[0]]} [{place[1]}]")
        self._has_old_leaders = True
        if refused.is_retriable or part.error_code == Error.UNKNOWN_SERVER_ERROR:
            logger.info("could not fetch: %s", refused)
            return None
        return refused

    # Saying

    def _say(self, words: Words, *, is_last: bool = False) -> Verdicts:
        """Tell each leader what became of what it gave; return the error codes."""
        verdicts: Verdicts = {}
        by_leader: dict[Node, dict[TopicIdPartition, Mapping[int, Word]]] = {}
        for place, said in words.items():
            leader = self._leaders.get(place)
            if leader in self._sessions and self._sessions[leader].is_open:
                by_leader.setdefault(leader, {})[place] = said
            else:
                verdicts[place] = Error.INVALID_RECORD_STATE
        for node, session in self._sessions.items():
            mine = by_leader.get(node, {})
            if session.is_open and (mine or is_last):
                verdicts |= self._say_to(node, session, mine, is_last=is_last)
        return verdicts

    def _say_to(
        self, node: Node, session: LeaderSession, words: Words, *, is_last: bool
    ) -> Verdicts:
        verdicts: Verdicts = dict.fromkeys(words, int(Error.NETWORK_EXCEPTION))
        answer = self._ask(node, Api.SHARE_ACKNOWLEDGE, session.acknowledge(words, is_last=is_last))
        if answer is None:
            return verdicts
        for topic in answer.responses:
            for part in topic.partitions:
                verdicts[topic.topic_id, int(part.partition_index)] = int(part.error_code)
        return verdicts

    def _ask(self, node: Node, api: Api, values: dict[str, Any]) -> Any:
        """Return the answer of a leader; None if the session with it is over."""
        session = self._sessions[node]
        try:
            connection = self._cluster.to(node)
            if values.get("is_renew_ack") and connection.version_of(api) < _RENEWS:
                raise ClientError(
                    f"{node} cannot renew locks: it does not support ShareAcknowledge v2"
                )
            answer = connection.ask(api, values)
        except PeerError as problem:
            logger.info("the share session with %s has ended: %s", node, problem)
            session.reset()
            self._has_old_leaders = True
            return None
        if answer.error_code:
            session.reset()
            if answer.error_code not in _SESSION_IS_OVER:
                raise _error(Refused(answer.error_code, f"{node}", answer.error_message))
            logger.info("the share session with %s has ended: %s", node, name_of(answer.error_code))
            return None
        session.advance()
        return answer

    # Telling

    def _report(self, verdicts: Verdicts) -> None:
        if any(verdicts.values()):
            described = self._described(verdicts)
            for place, problem in described.items():
                if problem is not None:
                    text = f"{place.topic} [{place.partition}]: {problem.args[0].name()}"
                    self._told(described, text)

    def _described(self, verdicts: Verdicts) -> dict[TopicPartition, KafkaException | None]:
        return {
            TopicPartition(self._names[id], index): KafkaException(KafkaError(code))
            if code
            else None
            for (id, index), code in verdicts.items()
        }


def _place(message: TakenMessage) -> TopicIdPartition:
    return message.topic_id, message.index


def _error(problem: PeerError) -> ClientError:
    code = KafkaError(problem.code) if isinstance(problem, Refused) else None
    return ClientError(str(problem), code)


def _settings(given: Mapping[str, Any]) -> PeerSettings:
    """Return our settings of what a caller gave; ClientError for those that only librdkafka has."""
    named = by_kafka_name(given)
    unknown = [name for name in named if name not in _KNOWN and not is_security(name)]
    if unknown:
        raise ClientError(
            f"a renewable queue has no setting {', '.join(unknown)}: it supports client.id and the "
            "security settings"
        )
    try:
        security = security_of(given)
    except InvalidSetting as problem:
        raise ClientError(str(problem)) from None
    client_id = str(named.get("client.id", _CLIENT_ID))
    return PeerSettings(client_id=client_id, security=security, request_timeout_s=_REQUEST_S)
