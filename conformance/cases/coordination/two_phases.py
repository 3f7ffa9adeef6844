"""Two-phase commit (KIP-939), which Kafka offers only with its unstable versions."""

from __future__ import annotations

from typing import Any

from conformance.cases.coordination.transactions import Transaction
from conformance.registry import CASES, Case, Script
from conformance.session import Session
from moldau.wire.apis import Api

GROUP = "Two-phase commit"
FIRST = 6


def two_phases(script: Script) -> Script:
    CASES.append(
        Case(GROUP, Api.INIT_PRODUCER_ID, script.__name__, script, FIRST, newest=True, locked=True)
    )
    return script


class Prepared(Transaction):
    """A producer that begins with InitProducerId v6."""

    def ready(self) -> Prepared:
        """Wait until the coordinator has it."""
        self.init()
        return self

    def ask(self, what: str, *, two: bool = True, keep: bool = False, **more: Any) -> Any:
        values: dict[str, Any] = {
            "transactional_id": self.id, "transaction_timeout": 60_000,
            "producer_id": -1, "producer_epoch": -1,
            "enable2_pc": two, "keep_prepared_txn": keep,
        }  # fmt: skip
        return self.s.ask(what, Api.INIT_PRODUCER_ID, FIRST, **values | more)

    def describe(self, what: str) -> None:
        answer = self.s.quietly(Api.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[self.id])
        (found,) = answer.transaction_states
        self.s.note(what, (found.transaction_state, found.transaction_timeout))


@two_phases
def two_phase_producers(s: Session, version: int) -> None:
    txn = Prepared(s).ready()
    txn.ask("without an id", transactional_id=None)
    txn.ask("one phase", two=False)
    txn.describe("its timeout")
    txn.become(txn.ask("two phases"))
    txn.describe("no timeout")
    txn.ask("a timeout of nothing", transaction_timeout=0)
    txn.ask("a timeout that is too long", transaction_timeout=900_001)
    txn.become(txn.ask("again"))
    mine: dict[str, Any] = {"producer_id": txn.producer_id, "producer_epoch": txn.epoch}
    txn.ask("another's epoch", **mine | {"producer_epoch": 30})
    txn.ask("another's id", **mine | {"producer_id": 4_000_000})
    txn.become(txn.ask("who it was", **mine))
    txn.ask("the same, as if unanswered", **mine)
    txn.ask("one phase again", two=False)
    txn.describe("its timeout again")


@two_phases
def two_phases_and_an_open_transaction(s: Session, version: int) -> None:
    topic, txn = s.topic(), Prepared(s).ready()
    txn.become(txn.ask("two phases"))
    txn.open(topic)
    txn.produce("a record", topic, 11)
    txn.describe("open")
    txn.ask("begin anew")
    txn.until("CompleteAbort")
    txn.become(txn.ask("after its end"))
    txn.open(topic)
    txn.end("commit", 3, commits=True)
    txn.until("CompleteCommit")
    txn.describe("committed")


@two_phases
def kept_without_two_phases(s: Session, version: int) -> None:
    Prepared(s).ready().ask("kept", two=False, keep=True)


@two_phases
def kept_where_nothing_is_open(s: Session, version: int) -> None:
    Prepared(s).ready().ask("kept", keep=True)


@two_phases
def kept_while_a_transaction_is_open(s: Session, version: int) -> None:
    topic, txn = s.topic(), Prepared(s).ready()
    txn.become(txn.ask("two phases"))
    txn.open(topic)
    txn.produce("a record", topic, 11)
    txn.ask("kept", keep=True)
    txn.describe("open as before")
