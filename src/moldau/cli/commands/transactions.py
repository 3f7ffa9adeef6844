"""`moldau transactions`: list, describe, abort, hanging, recover."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from moldau.cli.commands.recover import recover
from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, complete_topics
from moldau.cli.requests import connect_cluster
from moldau.cli.views.group import duration
from moldau.cli.views.output import Failure, show, show_json, show_table
from moldau.cli.views.prompt import confirm
from moldau.peer.cluster import Cluster
from moldau.peer.errors import Refused
from moldau.peer.transactions import (
    NO_TIMEOUT_MS,
    OPEN_STATES,
    SINK_PREFIX,
    DescribedTransaction,
    Filters,
    OpenTransaction,
    Transactions,
)
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error

app = typer.Typer(
    no_args_is_help=True,
    help="List, describe and abort transactions; find hanging ones.",
)


def complete_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Transactional ids for shell completion; none when no broker answers at once."""
    bootstrap = ctx.params.get("bootstrap") or DEFAULT_BOOTSTRAP
    try:
        with connect_cluster(bootstrap, retry_s=0) as cluster:
            names = [each.id for each in Transactions(cluster).listed()]
    except (Failure, typer.BadParameter):
        return []
    return [name for name in names if name.startswith(incomplete)]


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only in this state, such as Ongoing; may be repeated."),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="PATTERN",
            help="Only transactional ids that match this regular expression (RE2) completely.",
        ),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="N", help="Only those of this producer; may be repeated."),
    ] = None,
    longer_than: Annotated[
        float | None,
        typer.Option(min=0, metavar="S", help="Only those that started more than S seconds ago."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List transactional ids with their states, and how long each transaction has been open."""
    filters = Filters(
        state or (),
        producer_id or (),
        pattern,
        -1 if longer_than is None else int(longer_than * 1000),
    )
    with _transactions(bootstrap) as (_, transactions):
        listed = transactions.listed(filters)
        unfinished = [each for each in listed if each.state in OPEN_STATES]
        described = {each.id: each for each in transactions.describe_listed(unfinished)}
    rows = []
    for each in listed:
        found = described.get(each.id)
        open_s = None if found is None else _open_s(found)
        rows.append((each.id, each.state, open_s, each.producer_id, each.coordinator.id))
    if as_json:
        keys = ("transactional_id", "state", "open_seconds", "producer_id", "coordinator")
        show_json([dict(zip(keys, row, strict=True)) for row in rows])
    elif rows:
        columns = ("TRANSACTIONAL ID", "STATE", "OPEN FOR", "PRODUCER", "COORDINATOR")
        show_table(columns, [(*row[:2], _duration(row[2]), *row[3:]) for row in rows])
    else:
        show("no transactions", "dim", stderr=True)


@app.command()
def describe(
    ids: Annotated[
        list[str],
        typer.Argument(metavar="ID", help="Transactional ids.", autocompletion=complete_ids),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show a transaction: its producer, its state, its start, and the partitions it is open in."""
    with _transactions(bootstrap) as (_, transactions):
        for id in ids:
            found = _describe(transactions, id)
            if as_json:
                show_json(_as_json(found))
            else:
                _show(found)


@app.command()
def abort(
    id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            help="Transactional id of the open transaction.",
            autocompletion=complete_ids,
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            help="Instead of ID, for a hanging transaction: its topic.",
            autocompletion=complete_topics,
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="With --topic: its partition.")
    ] = None,
    producer_id: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="With --topic: its producer."),
    ] = None,
    lose_rows: Annotated[
        bool,
        typer.Option(
            "--lose-rows",
            help="Abort it even if it belongs to the Spark sink, which loses rows that were "
            "decided.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Abort a transaction; asks first.

    Given an ID, the coordinator aborts the transaction in all its partitions and fences its
    producer. A hanging transaction, which no coordinator knows, is aborted only in the partition
    given.
    """
    if id is not None:
        if (topic, partition, producer_id) != (None, None, None):
            raise typer.BadParameter("give either ID or --topic, --partition and --producer-id")
        with _transactions(bootstrap) as (_, transactions):
            _abort(transactions, id, yes, lose_rows)
        aborted: dict[str, Any] = {"transactional_id": id}
    elif topic is None or partition is None or producer_id is None:
        raise typer.BadParameter("give ID, or --topic, --partition and --producer-id")
    else:
        with _transactions(bootstrap) as (_, transactions):
            _abort_hanging(transactions, (topic, partition), producer_id, yes)
        aborted = {"topic": topic, "partition": partition, "producer_id": producer_id}
    if as_json:
        show_json({"aborted": aborted})
    else:
        show(f"{id or f'producer {producer_id} on {topic}-{partition}'}: aborted", "green")


@app.command()
def hanging(
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC",
            help="Topic to search; may be repeated. Default: all topics.",
            autocompletion=complete_topics,
        ),
    ] = None,
    older_than: Annotated[
        float,
        typer.Option(min=0, metavar="S", help="Only those without a write for S seconds."),
    ] = 0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Find transactions that are open in a partition but unknown to every coordinator.

    Nobody will end them, and consumers of committed messages see no message after them.
    """
    from moldau.peer.hanging import abort_command, find_hanging, held_back, places_of

    with _transactions(bootstrap) as (cluster, transactions):
        places, without_leader = places_of(cluster, topic or ())
        held = [each.place for each in held_back(cluster, places)]
        found = find_hanging(transactions, held, older_than)
    if without_leader:
        count = f"{without_leader} partition{'s' if without_leader != 1 else ''}"
        show(f"not checked: {count} without a leader", "yellow", stderr=True)
    if as_json:
        show_json([_hanging_as_json(each) for each in found])
    elif found:
        columns = ("TOPIC", "PARTITION", "PRODUCER", "EPOCH", "OPEN SINCE OFFSET", "LAST WRITE")
        show_table(columns, [_row(each) for each in found])
        for each in found:
            show(f"  try: {abort_command(each)}", stderr=True)
    else:
        show("no hanging transactions", "dim", stderr=True)


app.command()(recover)


@contextmanager
def _transactions(bootstrap: str) -> Iterator[tuple[Cluster, Transactions]]:
    with connect_cluster(bootstrap) as cluster:
        yield cluster, Transactions(cluster)


def _describe(transactions: Transactions, id: str) -> DescribedTransaction:
    try:
        return transactions.describe(id)
    except Refused as refused:
        if refused.code != Error.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        advice = "see `moldau transactions list`"
        raise Failure(f"there is no transactional id {id}", advice) from None


def _abort(transactions: Transactions, id: str, yes: bool, lose_rows: bool) -> None:
    found = _describe(transactions, id)
    _check_open(found)
    if found.is_of_sink and not lose_rows:
        raise Failure(
            f"{id} belongs to the Spark sink: if its batch is decided, aborting it loses rows",
            "`moldau transactions recover` commits it if it is decided, and aborts it if not; "
            "--lose-rows aborts it in any case",
        )
    places = ", ".join(f"{topic}-{index}" for topic, index in found.partitions)
    since = f", open for {duration(_open_s(found) or 0)}"
    confirm(f"Abort {id}{since} in {places or 'no partition'}, and fence its producer?", yes)
    # While the person thought, it may have ended, and the next one may have begun.
    again = _describe(transactions, id)
    _check_open(again)
    if (again.producer_id, again.epoch, again.started_ms) != (
        found.producer_id,
        found.epoch,
        found.started_ms,
    ):
        raise Failure(f"the transaction of {id} has ended in the meantime, and another has begun")
    transactions.fence(id)


def _check_open(found: DescribedTransaction) -> None:
    if not found.is_open:
        raise Failure(
            f"{found.id} has no open transaction: its state is {found.state}",
            "to find transactions that no coordinator knows, run `moldau transactions hanging`",
        )
    if found.state != "Ongoing":
        raise Failure(
            f"{found.id} is decided: its state is {found.state}",
            "it ends when all its partitions have leaders that accept the markers; see `moldau "
            "cluster describe`",
        )


def _abort_hanging(
    transactions: Transactions, place: TopicPartition, producer_id: int, yes: bool
) -> None:
    found = _find_hanging(transactions, place, producer_id)
    where = f"{place[0]}-{place[1]}"
    confirm(
        f"Abort the transaction of producer {producer_id} on {where}, open since offset "
        f"{found.start_offset}?",
        yes,
    )
    if _find_hanging(transactions, place, producer_id) != found:
        raise Failure(
            f"the transaction on {where} has ended in the meantime, and another has begun"
        )
    transactions.write_abort(found)


def _find_hanging(
    transactions: Transactions, place: TopicPartition, producer_id: int
) -> OpenTransaction:
    from moldau.peer.hanging import find_hanging, known_places

    where = f"{place[0]}-{place[1]}"
    for each in find_hanging(transactions, [place]):
        if each.producer_id == producer_id:
            return each
    if not any(each.producer_id == producer_id for each in transactions.open_in([place])):
        raise Failure(
            f"producer {producer_id} has no open transaction on {where}",
            "see `moldau transactions hanging`",
        )
    id = known_places(transactions.of_producers([producer_id])).get((producer_id, place))
    raise Failure(
        f"the transaction of producer {producer_id} on {where} does not hang: its coordinator "
        "knows it",
        _command(id) if id else "",
    )


def _command(id: str) -> str:
    is_of_sink = id.startswith(SINK_PREFIX)
    return "moldau transactions recover" if is_of_sink else f"moldau transactions abort {id}"


def _open_s(found: DescribedTransaction) -> float | None:
    if not found.is_open or found.started_ms is None:
        return None
    return max(0.0, round(time.time() - found.started_ms / 1000, 1))


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def _show(found: DescribedTransaction) -> None:
    open_s = _open_s(found)
    since = "" if open_s is None else f", open for {duration(open_s)}"
    timeout = "none (two-phase commit)"
    if found.timeout_ms != NO_TIMEOUT_MS:
        timeout = duration(found.timeout_ms / 1000)
    places = ", ".join(f"{topic}-{index}" for topic, index in found.partitions)
    show(f"{found.id}: {found.state}{since}", "bold")
    show(f"  producer     {found.producer_id}, epoch {found.epoch}")
    show(f"  timeout      {timeout}")
    show(f"  coordinator  broker {found.coordinator.id}")
    show(f"  partitions   {places or '-'}")


def _as_json(found: DescribedTransaction) -> dict[str, Any]:
    return {
        "transactional_id": found.id,
        "state": found.state,
        "open_seconds": _open_s(found),
        "started_ms": found.started_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.epoch,
        "timeout_ms": None if found.timeout_ms == NO_TIMEOUT_MS else found.timeout_ms,
        "coordinator": found.coordinator.id,
        "partitions": [{"topic": topic, "partition": index} for topic, index in found.partitions],
    }


def _row(each: OpenTransaction) -> tuple[object, ...]:
    ago_s = max(0.0, round(time.time() - each.written_ms / 1000, 1))
    written = f"{duration(ago_s)} ago" if each.written_ms >= 0 else "-"
    return (*each.place, each.producer_id, each.epoch, each.start_offset, written)


def _hanging_as_json(each: OpenTransaction) -> dict[str, Any]:
    topic, index = each.place
    return {
        "topic": topic,
        "partition": index,
        "producer_id": each.producer_id,
        "producer_epoch": each.epoch,
        "start_offset": each.start_offset,
        "last_write_ms": each.written_ms,
    }
