"""Transactions: which are open, for how long, where; and an end for those that nobody ends."""

from __future__ import annotations

import time

import msgspec

from moldau.console.call import Call
from moldau.console.endpoint import Done, endpoint
from moldau.console.errors import ApiError
from moldau.peer.transactions import (
    NO_TIMEOUT_MS,
    OPEN_STATES,
    DescribedTransaction,
    Transactions,
)

# Of so many open ones, the time since which they are open is asked for.
_MOST_DESCRIBED = 500


class TransactionRow(msgspec.Struct):
    id: str
    state: str
    producer_id: int
    coordinator: int
    open_s: float | None


class TransactionList(msgspec.Struct):
    transactions: list[TransactionRow]


class TransactionInfo(msgspec.Struct):
    """A transaction; `timeout_ms` is null where no time-out ends it.

    `operations` are those on its id, Write to abort it; null where the broker does not tell.
    """

    id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int | None
    started_ms: int | None
    open_s: float | None
    coordinator: int
    partitions: list[tuple[str, int]]
    operations: list[str] | None


@endpoint("GET", "api/transactions")
def list_transactions(call: Call) -> TransactionList:
    """List transactional ids, with how long each transaction has been open."""
    transactions = Transactions(call.cluster)
    listed = transactions.listed()
    unfinished = [each for each in listed if each.state in OPEN_STATES][:_MOST_DESCRIBED]
    described = {each.id: each for each in transactions.describe_listed(unfinished)}
    return TransactionList(
        [
            TransactionRow(
                each.id,
                each.state,
                each.producer_id,
                each.coordinator.id,
                _open_s(described[each.id]) if each.id in described else None,
            )
            for each in listed
        ]
    )


@endpoint("GET", "api/transactions/{id:path}")
def get_transaction(call: Call) -> TransactionInfo:
    """Describe a transaction: its producer, since when, and where it is open."""
    transactions = Transactions(call.cluster)
    found = transactions.describe(call.path["id"])
    operations: list[str] | None = None
    if found.state == "Ongoing" and not call.console.settings.read_only:
        may = transactions.may_fence(found.id)
        operations = None if may is None else ["Describe", "Write"] if may else ["Describe"]
    return TransactionInfo(
        found.id,
        found.state,
        found.producer_id,
        found.epoch,
        None if found.timeout_ms == NO_TIMEOUT_MS else found.timeout_ms,
        found.started_ms,
        _open_s(found),
        found.coordinator.id,
        list(found.partitions),
        operations,
    )


@endpoint("POST", "api/transactions/{id:path}/abort")
def abort_transaction(call: Call) -> Done:
    """Abort an open transaction, and refuse its producer from now on."""
    id = call.path["id"]
    transactions = Transactions(call.cluster)
    found = transactions.describe(id)
    if found.state != "Ongoing":
        raise ApiError(409, "not_open", f"{id} has no open transaction: it is {found.state}")
    if found.is_of_sink:
        raise ApiError(
            409,
            "of_sink",
            f"{id} belongs to the Spark sink: if its batch is decided, aborting it loses rows. "
            "`moldau transactions recover` commits it if it is decided, and aborts it if not",
        )
    transactions.fence(id)
    call.note("aborted transaction", id=id, producer_id=found.producer_id)
    return Done()


def _open_s(found: DescribedTransaction) -> float | None:
    if not found.is_open or found.started_ms is None:
        return None
    return max(0.0, round(time.time() - found.started_ms / 1000, 1))
