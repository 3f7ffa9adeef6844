"""Transaction coordinators, for those who stage and end transactions: identities, ends, what is
open. Blocking.

An end may come from any connection (KIP-98 asks for no more than the identity), so whoever knows an
open transaction can end it, and any number of times: the dialect of KIP-890 answers a repeated end
as it answered the first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, Protocol, TypeVar

from moldau.peer.cluster import Cluster
from moldau.peer.connection import Connection
from moldau.peer.dialogue import Asked
from moldau.peer.errors import RETRIABLE, ConnectionLost, PeerError, Refused
from moldau.peer.transactions import Transactions
from moldau.peer.view import Node
from moldau.wire.apis import Api
from moldau.wire.errors import Error

T = TypeVar("T")

# The level of this feature from which on every end raises the producer's epoch (KIP-890).
FEATURE = "transaction.version"
BY_EPOCHS = 2
# The first versions of that dialect, and the first with two-phase commit (KIP-939).
_PRODUCE, _END, _TWO_PHASE = 12, 5, 6
_TRANSACTION = 1

# Until an earlier end is carried out, everybody is told to come again.
TRANSIENT = RETRIABLE | {Error.CONCURRENT_TRANSACTIONS}
# Only the coordinator itself answers so.
_AT_HOME = (Error.CONCURRENT_TRANSACTIONS, Error.COORDINATOR_LOAD_IN_PROGRESS)
# The states in which an identity can write, or has written what waits for its end.
BEGUN = ["Ongoing", "Empty"]
# The answers to an end which say that the transaction has ended in another way, or that its writer
# is fenced. After any other, it is still open.
LOST = frozenset(
    (
        Error.INVALID_PRODUCER_EPOCH,
        Error.PRODUCER_FENCED,
        Error.INVALID_TXN_STATE,
        Error.INVALID_PRODUCER_ID_MAPPING,
    )
)


class PreparedTransaction(NamedTuple):
    """A transaction that waits for its end, by its id and by the identity that wrote it."""

    id: str
    producer_id: int
    epoch: int


class TransactionalIds(Protocol):
    """Ids of which any will do. One that is given up is never used again."""

    @property
    def current(self) -> str: ...

    def give_up(self) -> None: ...


class NotYet(Refused):
    """An answer that will be another one soon."""

    @property
    def is_retriable(self) -> bool:
        return True


def can_end_elsewhere(connection: Connection) -> bool:
    """Return whether transactions can be staged by one process and ended by another, safely."""
    return (
        connection.level_of(FEATURE) >= BY_EPOCHS
        and connection.version_of(Api.PRODUCE) >= _PRODUCE
        and connection.version_of(Api.END_TXN) >= _END
    )


class Coordinators:
    """The coordinators of a cluster, for one thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._transactions = Transactions(cluster)
        self._coordinators: dict[str, Node] = {}

    def begin(
        self, ids: TransactionalIds, timeout_ms: int, *, is_two_phase: bool = False
    ) -> PreparedTransaction:
        """Return a new identity for a transactional id; aborts what an earlier one left open.

        An id for which no answer came is given up: the broker may get the question late, and abort
        what is open by then.

        With `is_two_phase`, no time-out ends the transaction; Refused if the broker does not do
        that.
        """
        values = {
            "transaction_timeout": timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
            "enable2_pc": is_two_phase,
        }

        def ask() -> PreparedTransaction:
            id = ids.current
            connection = self._cluster.to(self._find([id])[id])
            if is_two_phase and connection.version_of(Api.INIT_PRODUCER_ID) < _TWO_PHASE:
                raise Refused(Error.UNSUPPORTED_VERSION, f"two-phase commit of {id!r}")
            try:
                answer = connection.ask(Api.INIT_PRODUCER_ID, values | {"transactional_id": id})
            except ConnectionLost:
                ids.give_up()
                raise
            _check(answer.error_code, f"transactional id {id!r}")
            return PreparedTransaction(id, int(answer.producer_id), int(answer.producer_epoch))

        return self._insist(ask)

    def end(
        self, transactions: Iterable[PreparedTransaction], *, commits: bool
    ) -> dict[PreparedTransaction, int]:
        """Ask for these ends until each has a final answer; return the error codes.

        Markers may not be written yet. Asked again, the answer comes when they are.
        """
        left = dict.fromkeys(transactions)
        codes: dict[PreparedTransaction, int] = {}

        def ask() -> dict[PreparedTransaction, int]:
            later: Refused | None = None
            for transaction, code in self._end_once(left, commits):
                if code in TRANSIENT:
                    later = NotYet(code, f"end of {transaction.id!r}")
                else:
                    codes[transaction] = code
                    del left[transaction]
            if later is not None:
                raise later
            return codes

        return self._insist(ask) if left else codes

    def abort(self, ids: Collection[str]) -> None:
        """Abort what is open under these ids, and fence whoever has one and has written nothing.

        Each by the identity that it has now: a broker that gets this late, when the id is in use
        again, refuses it. With InitProducerId it would abort what is open then.
        """
        codes = self.end(self._begun(ids), commits=False)
        for transaction, code in codes.items():
            if code and code not in LOST:
                raise Refused(code, f"end of {transaction.id!r}")
        # Once more, to return when they hold no reader back.
        self.end([each for each, code in codes.items() if not code], commits=False)

    def _begun(self, ids: Collection[str]) -> list[PreparedTransaction]:
        """Return the transactions of these ids that are open, or can be opened."""

        def ask() -> list[PreparedTransaction]:
            found = []
            for node, some in self._by_coordinator(ids).items():
                for each in self._transactions.describe_at(node, some):
                    if not isinstance(each, Refused):
                        if each.state in BEGUN:
                            found.append(PreparedTransaction(each.id, each.producer_id, each.epoch))
                    elif each.code != Error.TRANSACTIONAL_ID_NOT_FOUND:
                        raise each
            return found

        return self._insist(ask) if ids else []

    def ongoing(
        self,
        pattern: str,
        older_than_ms: int = -1,
        *,
        with_begun: bool = False,
        within_s: float | None = None,
    ) -> list[str]:
        """Return the ids of open transactions that match a pattern (RE2), of all coordinators.

        Also `with_begun` those whose producer has an identity, and has written nothing yet. Brokers
        before Kafka 4.1 know no patterns and return all; those before 3.8 know no ages.
        """
        values = {
            "state_filters": BEGUN if with_begun else BEGUN[:1],
            "duration_filter": older_than_ms,
            "transactional_id_pattern": pattern,
        }

        def ask(node: Node) -> list[str]:
            answer = self._cluster.to(node).ask(Api.LIST_TRANSACTIONS, values)
            _check(answer.error_code, f"transactions at {node}")
            return [str(each.transactional_id) for each in answer.transaction_states]

        # While a coordinator moves, two brokers may tell of the same one.
        found = self._insist(lambda: self._transactions.of_all(ask), within_s)
        return list(dict.fromkeys(found))

    def _end_once(
        self, left: Collection[PreparedTransaction], commits: bool
    ) -> list[tuple[PreparedTransaction, int]]:
        """Ask once for each, all at the same time."""
        asked: list[tuple[PreparedTransaction, Connection, Asked]] = []
        by_id = {each.id: each for each in left}
        for node, ids in self._by_coordinator(by_id).items():
            connection = self._cluster.to(node)
            for id in ids:
                values = by_id[id]._asdict() | {"committed": commits}
                values["transactional_id"] = values.pop("id")
                values["producer_epoch"] = values.pop("epoch")
                asked.append((by_id[id], connection, connection.send(Api.END_TXN, values)))
        return [
            (transaction, int(connection.receive(question).error_code))
            for transaction, connection, question in asked
        ]

    def _by_coordinator(self, ids: Collection[str]) -> dict[Node, list[str]]:
        by_node: dict[Node, list[str]] = {}
        for id, node in self._find(ids).items():
            by_node.setdefault(node, []).append(id)
        return by_node

    def _find(self, ids: Collection[str]) -> dict[str, Node]:
        missing = [id for id in ids if id not in self._coordinators]
        if missing:
            values = {"key_type": _TRANSACTION, "coordinator_keys": missing}
            answer = self._cluster.some_broker().ask(Api.FIND_COORDINATOR, values)
            for each in answer.coordinators:
                _check(each.error_code, f"coordinator of {each.key!r}")
                node = Node(int(each.node_id), str(each.host), int(each.port))
                self._coordinators[str(each.key)] = node
        return {id: self._coordinators[id] for id in ids}

    def _insist(self, ask: Callable[[], T], within_s: float | None = None) -> T:
        def anew() -> T:
            try:
                return ask()
            except PeerError as problem:
                if not (isinstance(problem, Refused) and problem.code in _AT_HOME):
                    # It may be elsewhere by now.
                    self._coordinators.clear()
                raise

        return self._cluster.insist(anew, within_s)


def _check(code: int, what: str) -> None:
    if code:
        raise (NotYet if code in TRANSIENT else Refused)(int(code), what)
