"""Checks of transactions: those that nobody will end, and those that hold readers far behind."""

from __future__ import annotations

import time
from collections.abc import Iterator

from moldau.cli.checks import Finding, Status
from moldau.cli.hanging import Held, abort_command, find_hanging, held_back, known_places, places_of
from moldau.cli.requests import connect_cluster
from moldau.cli.views.group import duration
from moldau.cli.views.output import Failure
from moldau.peer.cluster import Cluster
from moldau.peer.transactions import DescribedTransaction, OpenTransaction, Transactions

# Of Kafka's defaults the longest timeout that a producer may ask for is this.
LONG_S = 15 * 60.0
MANY_MESSAGES = 100_000
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
    late = list(_late(described, found, held))
    yield from late[:_NAMED]
    if not hanging and not late:
        count = f"{len(held)} partition{'s' if len(held) != 1 else ''}"
        detail = f"none hangs; open in {count}" if held else "none is open"
        yield Finding("transactions", Status.OK, detail)


def _hangs(each: OpenTransaction, held: dict[tuple[str, int], Held]) -> str:
    topic, index = each.place
    return (
        f"{topic}-{index}: a transaction of producer {each.producer_id} hangs, and no coordinator "
        f"knows it; {_messages(held[each.place])} after it are not shown as committed"
    )


def _late(
    described: list[DescribedTransaction],
    found: list[OpenTransaction],
    held: dict[tuple[str, int], Held],
) -> Iterator[Finding]:
    """Warn of transactions that are where a last stable offset stays, far behind or for long."""
    first = {(each.producer_id, each.place): each.start_offset for each in found}
    ids = known_places(described)
    by_id = {each.id: each for each in described}
    told: set[str] = set()
    for (producer_id, place), id in ids.items():
        here = held.get(place)
        if here is None or first.get((producer_id, place)) != here.last_stable or id in told:
            continue
        open_s = time.time() - (by_id[id].started_ms or 0) / 1000
        if open_s >= LONG_S or here.behind >= MANY_MESSAGES:
            told.add(id)
            yield Finding(
                "transactions",
                Status.WARN,
                f"{place[0]}-{place[1]}: the transaction of {id} has been open for "
                f"{duration(max(0.0, open_s))} ({by_id[id].state}); {_messages(here)} after it are "
                "not shown as committed",
                _advice(by_id[id]),
            )


def _advice(found: DescribedTransaction) -> str:
    if found.state == "Ongoing" and found.is_of_sink:
        return (
            "the Spark sink knows whether it is decided: start its query again, or run "
            "`moldau transactions recover`; to abort it may lose rows"
        )
    if found.state == "Ongoing":
        return f"end it in its program, or with `moldau transactions abort {found.id}`"
    return "it is decided, and its markers are on the way; see `moldau cluster describe`"


def _messages(held: Held) -> str:
    return f"{held.behind} message{'s' if held.behind != 1 else ''}"
