"""`moldau cluster`: describe, rebalance."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.clients import REQUEST_TIMEOUT_S, cluster_metadata, connect_admin, failures
from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from moldau.cli.reassignments import Ongoing, Reassignments
from moldau.cli.rebalance import Impossible, Move, plan
from moldau.cli.stopping import stopping
from moldau.cli.views.cluster import ClusterView, cluster_as_json, ids, look, show_cluster
from moldau.cli.views.output import Failure, ProgressBar, show, show_json, show_table
from moldau.cli.views.prompt import confirm
from moldau.topic_partition import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

app = typer.Typer(no_args_is_help=True, help="Describe a cluster and rebalance its partitions.")

THROTTLE = "follower.replication.throttled.rate"
_POLL_S = 0.3


@app.command()
def describe(
    every_partition: Annotated[
        bool,
        typer.Option("--all", help="Show all partitions, not only those that need attention."),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show the brokers, what each one leads and holds, and the partitions that lack a replica.

    A broker that holds replicas but is not running is shown as away.
    """
    admin = connect_admin(bootstrap)
    with Reassignments(bootstrap) as reassignments:
        view = look(admin, reassignments.under_way())
    if as_json:
        show_json(cluster_as_json(view))
    else:
        show_cluster(view, every_partition=every_partition)


@app.command()
def rebalance(
    remove: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="ID", help="Broker to move everything off; may be repeated."),
    ] = None,
    throttle: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="BYTES",
            help="Limit on what each broker copies per second. Default: no limit.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Spread the partitions over all brokers, including new ones, or move them off some brokers.

    Shows what would be copied, and asks. Moves as little as possible. Ctrl-C only stops watching:
    the moves continue, and the same command watches them again.
    """
    admin = connect_admin(bootstrap)
    with Reassignments(bootstrap) as reassignments:
        under_way = reassignments.under_way()
        view = look(admin, under_way)
        moves = _plan(view, under_way, remove or [])
        if not moves and not under_way:
            _clear_throttle(admin, view)
            _report(as_json, moves, done=True)
            return
        if not as_json:
            _show_plan(moves, under_way)
        if moves:
            confirm(f"Move {_count(len(moves))}?", yes)
        if throttle is not None:
            _set_throttle(admin, view, throttle)
        reassignments.begin(moves)
        places = {move.place for move in moves} | under_way.keys()
        if not _watch(reassignments, places, quiet=as_json):
            left = "" if throttle is None else f", {throttle} bytes per second each"
            show(
                f"the moves continue{left}; run `moldau cluster rebalance` to watch them again",
                "yellow",
                stderr=True,
            )
            _report(as_json, moves, done=False)
            return
    _clear_throttle(admin, view)
    _elect_preferred(admin, places)
    _report(as_json, moves, done=True, moved=len(places))


def _plan(
    view: ClusterView, under_way: dict[TopicPartition, Ongoing], leaving: list[int]
) -> list[Move]:
    """Plan the moves; partitions that are already moving count as arrived."""
    known = {broker.id for broker in view.brokers}
    held = {broker for each in view.partitions for broker in each.replicas}
    for broker in leaving:
        if broker not in known | held:
            raise Failure(f"there is no broker {broker}", "see `moldau cluster describe`")
    away = sorted(held - known - set(leaving))
    if away:
        raise Failure(
            f"broker {ids(away)} holds replicas but is not running",
            f"start it, or remove it with --remove {' --remove '.join(map(str, away))}",
        )
    partitions = {
        each.place: under_way[each.place].target if each.place in under_way else each.replicas
        for each in view.partitions
    }
    try:
        return plan(partitions, {broker.id: broker.rack for broker in view.brokers}, leaving)
    except Impossible as problem:
        raise Failure(
            str(problem), "add a broker first, or use topics with fewer replicas"
        ) from None


def _show_plan(moves: list[Move], under_way: dict[TopicPartition, Ongoing]) -> None:
    if moves:
        show_table(
            ("TOPIC", "PARTITION", "REPLICAS", "NEW", "COPIED TO"),
            [
                (*move.place, ids(move.old), ids(move.new), ids(sorted(move.copies)))
                for move in moves
            ],
        )
    copies = sum(len(move.copies) for move in moves)
    if moves:
        show(f"{_count(len(moves))}, of which {copies} replica{'s' if copies != 1 else ''} to copy")
    if under_way:
        show(f"{_count(len(under_way))} already moving")


def _watch(reassignments: Reassignments, places: set[TopicPartition], *, quiet: bool) -> bool:
    """Wait until all of these have moved; False if Ctrl-C came first."""
    shown = not quiet and sys.stderr.isatty()
    with stopping() as stop, ProgressBar("moving", len(places), enabled=shown) as bar:
        while not stop.is_set():
            left = places & reassignments.under_way().keys()
            bar.update(len(places) - len(left))
            if not left:
                return True
            stop.wait(_POLL_S)
    return False


def _report(as_json: bool, moves: list[Move], *, done: bool, moved: int = 0) -> None:
    if as_json:
        show_json(
            {
                "moves": [
                    {
                        "topic": move.place[0],
                        "partition": move.place[1],
                        "before": list(move.old),
                        "replicas": list(move.new),
                    }
                    for move in moves
                ],
                "done": done,
            }
        )
    elif moved:
        show(f"{_count(moved)} moved", "green")
    elif done:
        show("nothing to move: the load is already balanced", "green")


def _set_throttle(admin: AdminClient, view: ClusterView, rate: int) -> None:
    _alter_brokers(admin, [broker.id for broker in view.brokers], str(rate))


def _clear_throttle(admin: AdminClient, view: ClusterView) -> None:
    """Remove throttles, including those of earlier runs that were not watched."""
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    resources = {
        ConfigResource(ResourceType.BROKER, str(broker.id)): broker.id for broker in view.brokers
    }
    throttled = []
    with failures():
        for resource, number in resources.items():
            asked = admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
            entry = asked[resource].result().get(THROTTLE)
            own = ConfigSource.DYNAMIC_BROKER_CONFIG.value
            if entry is not None and entry.source == own:
                throttled.append(number)
    if throttled:
        _alter_brokers(admin, throttled, None)


def _alter_brokers(admin: AdminClient, brokers: list[int], value: str | None) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    with failures():
        for number in brokers:
            resource = ConfigResource(
                ResourceType.BROKER,
                str(number),
                incremental_configs=[ConfigEntry(THROTTLE, value, incremental_operation=operation)],
            )
            asked = admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
            asked[resource].result()


def _elect_preferred(admin: AdminClient, places: set[TopicPartition]) -> None:
    """Elect the leaders that the plan chose for the moved partitions."""
    from confluent_kafka import ElectionType, TopicPartition

    existing = cluster_metadata(admin).topics
    asked = [TopicPartition(*place) for place in sorted(places) if place[0] in existing]
    with failures():
        # The outcome of each is left alone: the controller does the same by itself later. A time
        # limit cannot be given: confluent-kafka 2.16 fails on it.
        admin.elect_leaders(ElectionType.PREFERRED, asked).result(REQUEST_TIMEOUT_S)


def _count(number: int) -> str:
    return f"{number} partition{'s' if number != 1 else ''}"
