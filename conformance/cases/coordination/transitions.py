"""Requests that meet a transaction between its decision and its end, in both dialects.

The markers of many partitions, each forced to disk, take a while. An answer counts only if the
transaction is still being ended after it; otherwise the same is tried with another one. Whoever
adds something may be told to come again, or may be kept waiting for a moment: there the answer
counts that is neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.cases.coordination.transactions import Transaction
from conformance.registry import case
from conformance.session import Session
from moldau.wire.apis import Api

_PARTITIONS = 100
_TRIES = 20
_PREPARED = ("PrepareCommit", "PrepareAbort")
_AGAIN = "concurrent_transactions"
# The versions of EndTxn of the two dialects.
_ENDS = {"older": 3, "newer": 5}

Ask = Callable[[Transaction], tuple[Api, int, dict[str, Any]]]


class Transitions:
    """A transaction whose end takes long, again for every question."""

    def __init__(self, s: Session) -> None:
        self._s = s
        self.topic = s.topic(_PARTITIONS, {"flush.messages": "1"})
        self.group = s.name("g")
        s.until(
            lambda: int(s.quietly(Api.FIND_COORDINATOR, 0, key=self.group).error_code) == 0,
            "coordinator",
        )
        self._txn = Transaction(s)

    def ask(self, what: str, dialect: str, commits: bool, question: Ask, *, adds: bool) -> None:
        """Ask while the transaction is being ended, as who ended it."""
        txn, s = self._txn, self._s

        def named(version: int) -> str:
            return f"{what} v{version}, {'commit' if commits else 'abort'}, {dialect}"

        for _ in range(_TRIES):
            self._begin()
            ended = s.quietly(Api.END_TXN, _ENDS[dialect], **txn.who, committed=commits)
            assert int(ended.error_code) == 0, ended
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
            return _AGAIN not in str(self._s.symbols.plain(answers[-1]))

        self._s.until(is_final, "final answer")
        return answers[-1]

    def _begin(self) -> None:
        txn = self._txn.init()
        who = {f"v3_and_below_{key}": value for key, value in txn.who.items()}
        named = [{"name": self.topic, "partitions": list(range(_PARTITIONS))}]

        def added() -> bool:
            answer = self._s.quietly(Api.ADD_PARTITIONS_TO_TXN, 3, **who, v3_and_below_topics=named)
            (result,) = answer.results_by_topic_v3_and_below
            return {int(e.partition_error_code) for e in result.results_by_partition} == {0}

        self._s.until(added, "transaction")


@case(Api.END_TXN, newest=True)
def while_it_is_being_ended(s: Session, version: int) -> None:
    transitions = Transitions(s)
    topic, group = transitions.topic, transitions.group

    def init(txn: Transaction) -> tuple[Api, int, dict[str, Any]]:
        values = {"transactional_id": txn.id, "transaction_timeout": 60_000}
        return Api.INIT_PRODUCER_ID, 5, values | {"producer_id": -1, "producer_epoch": -1}

    def init_as_before(txn: Transaction) -> tuple[Api, int, dict[str, Any]]:
        return Api.INIT_PRODUCER_ID, 5, txn.who | {"transaction_timeout": 60_000}

    def add(txn: Transaction) -> tuple[Api, int, dict[str, Any]]:
        who = {f"v3_and_below_{key}": value for key, value in txn.who.items()}
        named = [{"name": topic, "partitions": [0]}]
        return Api.ADD_PARTITIONS_TO_TXN, 3, who | {"v3_and_below_topics": named}

    def by_a_broker(*, verify_only: bool) -> Ask:
        def ask(txn: Transaction) -> tuple[Api, int, dict[str, Any]]:
            named = [{"name": topic, "partitions": [0]}]
            wanted = txn.who | {"verify_only": verify_only, "topics": named}
            return Api.ADD_PARTITIONS_TO_TXN, 5, {"transactions": [wanted]}

        return ask

    def add_offsets(txn: Transaction) -> tuple[Api, int, dict[str, Any]]:
        return Api.ADD_OFFSETS_TO_TXN, 4, txn.who | {"group_id": group}

    def end(which: int, *, commits: bool) -> Ask:
        return lambda txn: (Api.END_TXN, which, txn.who | {"committed": commits})

    def commit_offset(txn: Transaction) -> tuple[Api, int, dict[str, Any]]:
        partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
        values = {"group_id": group, "generation_id": -1, "member_id": "", **txn.who}
        return Api.TXN_OFFSET_COMMIT, 4, values | {
            "topics": [{"name": topic, "partitions": [partition]}]
        }  # fmt: skip

    for dialect, which in _ENDS.items():
        for commits in (True, False):

            def ask(what: str, question: Ask, *, adds: bool = False) -> None:
                transitions.ask(what, dialect, commits, question, adds=adds)  # noqa: B023

            ask("a new producer", init)
            ask("the producer begins anew", init_as_before)
            ask("a partition", add, adds=True)
            ask("a partition, by a broker", by_a_broker(verify_only=False), adds=True)
            ask("a partition, to be verified", by_a_broker(verify_only=True))
            ask("a group", add_offsets, adds=True)
            ask("an offset", commit_offset)
            ask("the same end", end(which, commits=commits))
            ask("the other end", end(which, commits=not commits))
