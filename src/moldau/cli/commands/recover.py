"""`moldau transactions recover`: end what drivers of the Spark sink left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from moldau.cli.requests import connect_cluster
from moldau.cli.views.output import Failure, show, show_json

if TYPE_CHECKING:
    from moldau.spark.sink.recovery import Recovered


def recover(
    query: Annotated[
        str | None,
        typer.Option(
            metavar="QUERY",
            help="Only this query: its id, or the txnAppId of a write; with /TOPIC, only at that "
            "topic.",
        ),
    ] = None,
    older_than: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="S",
            help="Also abort transactions that were staged more than S seconds ago by a driver "
            "that may be alive.",
        ),
    ] = 3600,
    give_up: Annotated[
        str | None,
        typer.Option(
            metavar="QUERY",
            help="Let this query continue although transactions of its last batch are lost.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Finish what the Spark sink left open: commit what was decided, abort what was not.

    Decisions of drivers that died are carried out. Transactions that were staged but never decided
    are aborted: those of earlier runs at once, those of the last run when they are old.
    """
    from moldau.spark.sink.recovery import recover as recover_sinks

    if give_up is not None and query not in (None, give_up):
        raise typer.BadParameter("give either --query or --give-up")
    with connect_cluster(bootstrap) as cluster:
        done = recover_sinks(
            cluster,
            older_than_ms=int(older_than * 1000),
            query=give_up or query,
            gives_up=give_up is not None,
        )
    if as_json:
        show_json([_as_json(each) for each in done])
    else:
        for each in done:
            _show(each)
        if not done:
            show("nothing to recover", "dim", stderr=True)
    undone = [problem for each in done for problem in (each.lost, each.refused) if problem]
    if undone:
        raise Failure(undone[0])


def _show(each: Recovered) -> None:
    if each.finished_batch is not None:
        show(f"{each.query}: batch {each.finished_batch} is committed", "green")
    for id in each.given_up:
        show(f"{each.query}: lost {id}", "yellow")
    for id in each.aborted:
        show(f"{each.query}: aborted {id}")


def _as_json(each: Recovered) -> dict[str, Any]:
    return {
        "query": each.query,
        "finished_batch": each.finished_batch,
        "aborted": each.aborted,
        "given_up": list(each.given_up),
        "lost": each.lost,
        "refused": each.refused,
    }
