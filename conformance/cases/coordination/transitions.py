"""Requests that meet a transaction between its decision and its end, in both dialects.

The markers of many partitions, each forced to disk, take a while. An answer counts only if the
transaction is still being ended after it; otherwise the same is tried with another one. Whoever
adds something may be told to come again, or may be kept waiting for a moment: there the answer
counts that is neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.cases.coordination.membership import ready
from conformance.cases.coordination.transactions import Transaction
from conformance.registry import case
from conformance.session import Session
from moldau.wire.apis import Api
from moldau.wire.errors import Error

_PARTITIONS = 100
_TRIES = 20
_PREPARED = ("PrepareCommit", "PrepareAbort")
_AGAIN = ("concurrent_transactions", "not_enough_replicas")
# The versions of EndTxn of the two dialects.
_ENDS = {"older": 3, "newer": 5}
_BY_ANOTHER = "by another producer"

Asked = tuple[Api, int, dict[str, Any]]
Ask = Callable[[Transaction], Asked]


class Transitions:
    """A transaction whose end takes long, again for every question."""

    def __init__(self, s: Session) -> None:
        self._s = s
        self.topic = s.topic(_PARTITIONS, {"flush.messages": "1"})
        self.group = s.name("g")
        ready(s, self.group)
        self._txn = Transaction(s)

    def ask(self, what: str, dialect: str, commits: bool, question: Ask, *, adds: bool) -> None:
        """Ask while the transaction is being ended, as who ended it."""
        txn, s = self._txn, self._s

        def named(version: int) -> str:
            return f"{what} v{version}, {'commit' if commits else 'abort'}, {dialect}"

        for _ in range(_TRIES):
            self._begin()
            self._end(dialect, commits)
            api, version, values = question(txn)
            if adds:
                s.note(named(version), self._insist(api, version, values), api)
                return
            answer = s.quietly(api, version, **values)
            is_held = txn.state() in _PREPARED
            txn.until("CompleteCommit" if commits else "CompleteAbort")
            if is_held:
                s.note(named(version), answer, api)
                return
        raise AssertionError(f"{what}: the end was never slow enough")

    def _insist(self, api: Api, version: int, values: dict[str, Any]) -> Any:
        """Ask until the answer is not to come again."""
        answers: list[Any] = []

        def is_final() -> bool:
            answers.append(self._s.quietly(api, version, **values))
            shown = str(self._s.symbols.plain(answers[-1]))
            return not any(each in shown for each in _AGAIN)

        self._s.until(is_final, "final answer")
        if api is Api.PRODUCE:
            # Where it is written depends on how often this was tried.
            return [int(e.error_code) for e in answers[-1].responses[0].partition_responses]
        return answers[-1]

    def _end(self, dialect: str, commits: bool) -> None:
        txn, s = self._txn, self._s
        if dialect == _BY_ANOTHER:
            values = {"transactional_id": txn.id, "transaction_timeout": 60_000}
            answer = s.quietly(Api.INIT_PRODUCER_ID, 1, **values)
            assert int(answer.error_code) == Error.CONCURRENT_TRANSACTIONS, answer
        else:
            answer = s.quietly(Api.END_TXN, _ENDS[dialect], **txn.who, committed=commits)
            assert int(answer.error_code) == 0, answer

    def _begin(self) -> None:
        txn = self._txn.init()
        who = {f"v3_and_below_{key}": value for key, value in txn.who.items()}
        named = [{"name": self.topic, "partitions": list(range(_PARTITIONS))}]

        def added() -> bool:
            answer = self._s.quietly(Api.ADD_PARTITIONS_TO_TXN, 3, **who, v3_and_below_topics=named)
            (result,) = answer.results_by_topic_v3_and_below
            return {int(e.partition_error_code) for e in result.results_by_partition} == {0}

        self._s.until(added, "transaction")


class Questions:
    """What is asked meanwhile; `more` makes another producer of the one who ended it."""

    def __init__(self, s: Session, topic: str, group: str) -> None:
        self._s, self._topic, self._group = s, topic, group

    def init(self, txn: Transaction) -> Asked:
        values = {"transactional_id": txn.id, "transaction_timeout": 60_000}
        return Api.INIT_PRODUCER_ID, 5, values | {"producer_id": -1, "producer_epoch": -1}

    def init_as(self, **more: Any) -> Ask:
        timeout = {"transaction_timeout": 60_000}
        return lambda txn: (Api.INIT_PRODUCER_ID, 5, txn.who | timeout | _of(txn, more))

    def add(self, txn: Transaction) -> Asked:
        who = {f"v3_and_below_{key}": value for key, value in txn.who.items()}
        named = [{"name": self._topic, "partitions": [0]}]
        return Api.ADD_PARTITIONS_TO_TXN, 3, who | {"v3_and_below_topics": named}

    def by_a_broker(self, *, verify_only: bool, **more: Any) -> Ask:
        def ask(txn: Transaction) -> Asked:
            named = [{"name": self._topic, "partitions": [0]}]
            wanted = {**txn.who, "verify_only": verify_only, "topics": named} | _of(txn, more)
            return Api.ADD_PARTITIONS_TO_TXN, 5, {"transactions": [wanted]}

        return ask

    def add_offsets(self, txn: Transaction) -> Asked:
        return Api.ADD_OFFSETS_TO_TXN, 4, txn.who | {"group_id": self._group}

    def end(self, which: int, *, commits: bool, **more: Any) -> Ask:
        return lambda txn: (
            Api.END_TXN, which, {**txn.who, "committed": commits} | _of(txn, more)
        )  # fmt: skip

    def commit_offset(self, which: int) -> Ask:
        def ask(txn: Transaction) -> Asked:
            partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
            values = {"group_id": self._group, "generation_id": -1, "member_id": "", **txn.who}
            return Api.TXN_OFFSET_COMMIT, which, values | {
                "topics": [{"name": self._topic, "partitions": [partition]}]
            }  # fmt: skip

        return ask

    def write(self, which: int) -> Ask:
        def ask(txn: Transaction) -> Asked:
            batch = self._s.batch(
                b"x", producer_id=txn.producer_id, producer_epoch=txn.epoch, base_sequence=0,
                is_transactional=True,
            )  # fmt: skip
            data = [{"name": self._topic, "partition_data": [{"index": 0, "records": batch}]}]
            values = {"transactional_id": txn.id, "acks": -1, "timeout": 10_000}
            return Api.PRODUCE, which, values | {"topic_data": data}

        return ask


def _of(txn: Transaction, more: dict[str, Any]) -> dict[str, Any]:
    """Epochs are told from that of the producer."""
    return {
        key: txn.epoch + value if key == "producer_epoch" else value for key, value in more.items()
    }


def _ask_all(s: Session, dialect: str, commits: bool) -> None:
    transitions = Transitions(s)
    asked = Questions(s, transitions.topic, transitions.group)

    def ask(what: str, question: Ask, *, adds: bool = False) -> None:
        transitions.ask(what, dialect, commits, question, adds=adds)

    ask("a new producer", asked.init)
    ask("the producer begins anew", asked.init_as())
    ask("one of a later epoch begins", asked.init_as(producer_epoch=7))
    ask("one of an earlier epoch begins", asked.init_as(producer_epoch=-1))
    ask("one of another id begins", asked.init_as(producer_id=4_000_000))
    ask("a partition", asked.add, adds=True)
    ask("a partition, by a broker", asked.by_a_broker(verify_only=False), adds=True)
    ask("a partition, to be verified", asked.by_a_broker(verify_only=True))
    ask("verified for a later epoch", asked.by_a_broker(verify_only=True, producer_epoch=7))
    ask("verified for another", asked.by_a_broker(verify_only=True, producer_id=4_000_000))
    ask("a group", asked.add_offsets, adds=True)
    ask("an offset", asked.commit_offset(4))
    ask("an offset that adds its group", asked.commit_offset(5), adds=True)
    for which in (11, 12):
        ask(f"a write, {which}", asked.write(which), adds=True)
    for which in (3, 5):
        for other, what in ((commits, "the same end"), (not commits, "the other end")):
            ask(what, asked.end(which, commits=other))
        ask("an end by a later epoch", asked.end(which, commits=commits, producer_epoch=7))
        ask("an end by an earlier epoch", asked.end(which, commits=commits, producer_epoch=-1))
        ask("an end by another", asked.end(which, commits=commits, producer_id=4_000_000))


@case(Api.END_TXN, newest=True)
def while_it_is_being_committed(s: Session, version: int) -> None:
    for dialect in _ENDS:
        _ask_all(s, dialect, True)


@case(Api.END_TXN, newest=True)
def while_it_is_being_aborted(s: Session, version: int) -> None:
    for dialect in _ENDS:
        _ask_all(s, dialect, False)


@case(Api.END_TXN, newest=True)
def while_it_is_being_aborted_by_another(s: Session, version: int) -> None:
    _ask_all(s, _BY_ANOTHER, False)
