"""Checks of transactions: those that nobody will end, and those that hold readers far behind."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.cli.checks import Finding, Status
from moldau.cli.requests import connect_cluster
from moldau.cli.views.group import duration
from moldau.cli.views.output import Failure
from moldau.peer.cluster import Cluster
from moldau.peer.hanging import (
    Held,
    Late,
    abort_command,
    find_hanging,
    find_late,
    held_back,
    places_of,
)
from moldau.peer.transactions import DescribedTransaction, OpenTransaction, Transactions

_NAMED = 5


def check_transactions(bootstrap: str) -> Iterator[Finding]:
    """Say which transactions hold back those who read committed messages, and what ends them."""
    try:
        with connect_cluster(bootstrap, retry_s=0) as cluster:
            yield from _check(cluster)
    except Failure as failure:
        # The user of this command may be somebody who may not see them.
        detail = f"not checked: {failure.message}"
        yield Finding("transactions", Status.WARN, detail, failure.advice)


def _check(cluster: Cluster) -> Iterator[Finding]:
    transactions = Transactions(cluster)
    places, _ = places_of(cluster)
    held = {each.place: each for each in held_back(cluster, places)}
    found = transactions.open_in(held)
    hanging = find_hanging(transactions, held)
    for each in hanging[:_NAMED]:
        yield Finding("transactions", Status.FAIL, _hangs(each, held), abort_command(each))
    if len(hanging) > _NAMED:
        detail = f"{len(hanging) - _NAMED} more transactions hang"
        yield Finding("transactions", Status.FAIL, detail, "moldau transactions hanging")
    holders = {each.producer_id for each in found if each not in hanging}
    described = transactions.of_producers(holders) if holders else []
    late = find_late(described, found, held)
    yield from map(_waits, late[:_NAMED])
    if not hanging and not late:
        count = f"{len(held)} partition{'s' if len(held) != 1 else ''}"
        detail = f"none hanging; open in {count}" if held else "none is open"
        yield Finding("transactions", Status.OK, detail)


def _hangs(each: OpenTransaction, held: dict[tuple[str, int], Held]) -> str:
    topic, index = each.place
    return (
        f"{topic}-{index}: a transaction of producer {each.producer_id} hangs, and no coordinator "
        f"knows it; {_messages(held[each.place])} after it are not shown as committed"
    )


def _waits(each: Late) -> Finding:
    topic, index = each.held.place
    found = each.transaction
    return Finding(
        "transactions",
        Status.WARN,
        f"{topic}-{index}: the transaction of {found.id} has been open for "
        f"{duration(each.open_s)} ({found.state}); {_messages(each.held)} after it are "
        "not shown as committed",
        _advice(found),
    )


def _advice(found: DescribedTransaction) -> str:
    if found.state == "Ongoing" and found.is_of_sink:
        return (
            "only the Spark sink knows whether it is decided: restart its query, or run `moldau "
            "transactions recover`; aborting it may lose rows"
        )
    if found.state == "Ongoing":
        return f"end it in its program, or with `moldau transactions abort {found.id}`"
    return "it is decided, and its markers are on the way; see `moldau cluster describe`"


def _messages(held: Held) -> str:
    return f"{held.behind} message{'s' if held.behind != 1 else ''}"
