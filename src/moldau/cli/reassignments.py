"""Partitions on the move: begun and watched over the wire, since librdkafka has no such request."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from moldau.cli.clients import CLIENT_ID, CONNECT_TIMEOUT_S, parse_addresses
from moldau.cli.rebalance import Move, Replicas
from moldau.cli.views.output import Failure
from moldau.peer.connection import Connection
from moldau.peer.errors import ConnectionLost, PeerError, Refused
from moldau.security.client_config import client_security
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error

T = TypeVar("T")

# A controller that has just died is replaced well within it.
INSIST_S = 30.0
_PAUSE_S = 0.2
_PASSING = frozenset(
    (Error.NOT_CONTROLLER, Error.REQUEST_TIMED_OUT, Error.COORDINATOR_NOT_AVAILABLE)
)


@dataclass(frozen=True, slots=True)
class Ongoing:
    """A partition that moves: all its replicas now, and which of them come and go."""

    replicas: Replicas
    adding: Replicas
    removing: Replicas

    @property
    def target(self) -> Replicas:
        return tuple(broker for broker in self.replicas if broker not in self.removing)


class Reassignments:
    """Asks whichever broker answers, which passes it on to the controller; for one thread."""

    def __init__(self, bootstrap: str) -> None:
        self._addresses = parse_addresses(bootstrap)
        self._connection: Connection | None = None

    def __enter__(self) -> Reassignments:
        return self

    def __exit__(self, *problem: object) -> None:
        self._hang_up()

    def under_way(self) -> dict[TopicPartition, Ongoing]:
        """Return the partitions that move at this moment."""
        answer = self._insist(
            lambda: self._ask(Api.LIST_PARTITION_REASSIGNMENTS, {"topics": None}, "moves under way")
        )
        return {
            (str(topic.name), int(partition.partition_index)): Ongoing(
                tuple(map(int, partition.replicas)),
                tuple(map(int, partition.adding_replicas)),
                tuple(map(int, partition.removing_replicas)),
            )
            for topic in answer.topics
            for partition in topic.partitions
        }

    def begin(self, moves: Sequence[Move]) -> None:
        """Ask for these moves; they go on by themselves. Failure if one is refused."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for move in moves:
            topic, index = move.place
            entry = {"partition_index": index, "replicas": list(move.new)}
            topics.setdefault(topic, []).append(entry)
        values = {"topics": [{"name": name, "partitions": all} for name, all in topics.items()]}
        answer = self._insist(
            lambda: self._ask(Api.ALTER_PARTITION_REASSIGNMENTS, values, "the moves")
        )
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.error_code:
                    what = f"{topic.name}-{partition.partition_index}"
                    refused = Refused(int(partition.error_code), what, partition.error_message)
                    raise Failure(
                        str(refused), "the other moves continue; see `moldau cluster describe`"
                    )

    def _ask(self, api: Api, values: dict[str, Any], what: str) -> Any:
        if self._connection is None or not self._connection.is_open:
            self._connection = self._connect()
        answer = self._connection.ask(api, values)
        if answer.error_code:
            raise Refused(int(answer.error_code), what, answer.error_message)
        return answer

    def _connect(self) -> Connection:
        lost: ConnectionLost | None = None
        for host, port in self._addresses:
            try:
                return Connection(
                    host,
                    port,
                    CLIENT_ID,
                    connect_timeout_s=CONNECT_TIMEOUT_S,
                    security=client_security(),
                )
            except ConnectionLost as problem:
                lost = problem
        assert lost is not None
        raise lost

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _insist(self, ask: Callable[[], T]) -> T:
        deadline = time.monotonic() + INSIST_S
        while True:
            try:
                return ask()
            except PeerError as problem:
                is_passing = isinstance(problem, ConnectionLost) or (
                    isinstance(problem, Refused)
                    and (problem.is_retriable or problem.code in _PASSING)
                )
                if not is_passing or time.monotonic() > deadline:
                    raise Failure(str(problem)) from None
                # Another broker may know better.
                self._hang_up()
                self._addresses.append(self._addresses.pop(0))
            with suppress(InterruptedError):
                time.sleep(_PAUSE_S)
