"""`moldau topics`: create, list, describe, alter, delete."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.clients import (
    REQUEST_TIMEOUT_S,
    cluster_metadata,
    connect_admin,
    failure_of,
    failures,
    topic_metadata,
)
from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, Topic, key_values
from moldau.cli.views.output import Failure, show, show_json, show_table
from moldau.cluster.state.internal_topics import is_internal_name

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, TopicMetadata

app = typer.Typer(no_args_is_help=True, help="Create, list, describe, change and delete topics.")

Configs = Annotated[
    list[str] | None,
    typer.Option(
        "--config", metavar="KEY=VALUE", help="A topic setting, such as retention.ms=3600000."
    ),
]


@app.command()
def create(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Number of partitions. Default: the broker's num.partitions."
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of copies. Default: the broker's default.replication.factor.",
        ),
    ] = None,
    config: Configs = None,
    if_not_exists: Annotated[
        bool,
        typer.Option(
            "--if-not-exists", help="Do not fail if the topic exists; leave it unchanged."
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Create a topic."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    configs = key_values(config or [], "--config")
    admin = connect_admin(bootstrap)
    wanted = NewTopic(
        topic,
        num_partitions=-1 if partitions is None else partitions,
        replication_factor=-1 if replication_factor is None else replication_factor,
        config=configs,
    )
    created = True
    try:
        with failures():
            future = admin.create_topics([wanted], request_timeout=REQUEST_TIMEOUT_S)[topic]
        future.result()
    except KafkaException as problem:
        error = problem.args[0]
        if error.code() != KafkaError.TOPIC_ALREADY_EXISTS or not if_not_exists:
            raise failure_of(error, topic) from None
        created = False
    count = len(topic_metadata(admin, topic).partitions)
    if as_json:
        show_json({"topic": topic, "partitions": count, "created": created})
    else:
        what = f"{count} partition{'s' if count != 1 else ''}"
        show(f"{topic}: {'created' if created else 'already exists'} with {what}", "green")


@app.command("list")
def list_topics(
    internal: Annotated[
        bool,
        typer.Option(
            "--internal", help="Include internal topics, whose names begin with two underscores."
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List all topics."""
    admin = connect_admin(bootstrap)
    topics = cluster_metadata(admin).topics
    rows: list[tuple[str, int, int]] = []
    for name in sorted(topics):
        if is_internal_name(name) and not internal:
            continue
        placed = topics[name].partitions.values()
        rows.append((name, len(placed), max((len(p.replicas) for p in placed), default=0)))
    if as_json:
        show_json([{"topic": n, "partitions": p, "replication_factor": r} for n, p, r in rows])
    elif rows:
        show_table(("TOPIC", "PARTITIONS", "REPLICAS"), rows)
    else:
        show("no topics yet; create one with `moldau topics create TOPIC`", "dim", stderr=True)


@app.command()
def describe(
    topic: Topic,
    every_config: Annotated[
        bool, typer.Option("--all", help="Show all settings, not only those that were changed.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show a topic's partitions, their replicas and offsets, and its settings."""
    admin = connect_admin(bootstrap)
    metadata = topic_metadata(admin, topic)
    partitions = _describe_partitions(admin, topic, metadata)
    configs = _describe_configs(admin, topic, every_config)
    if as_json:
        show_json({"topic": topic, "partitions": partitions, "configs": configs})
        return
    show(f"{topic}: {len(partitions)} partition{'s' if len(partitions) != 1 else ''}", "bold")
    show_table(
        ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "END", "MESSAGES"),
        [
            (
                p["partition"],
                p["leader"],
                ",".join(map(str, p["replicas"])),
                ",".join(map(str, p["isr"])),
                p["start"],
                p["end"],
                p["end"] - p["start"],
            )
            for p in partitions
        ],
    )
    for key, value in configs.items():
        show(f"{key}={value}")


@app.command()
def alter(
    topic: Topic,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="New number of partitions, which can only increase."),
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY", help="A setting to reset to the broker's default; may be repeated."
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Add partitions to a topic or change its settings."""
    changes = key_values(config or [], "--config")
    if partitions is None and not changes and not delete_config:
        raise typer.BadParameter(
            "nothing to change; give --partitions, --config or --delete-config"
        )
    admin = connect_admin(bootstrap)
    topic_metadata(admin, topic)
    if changes or delete_config:
        _alter_configs(admin, topic, changes, delete_config or [])
    if partitions is not None:
        from confluent_kafka.admin import NewPartitions

        grown = admin.create_partitions(
            [NewPartitions(topic, partitions)], request_timeout=REQUEST_TIMEOUT_S
        )
        _wait(grown[topic], topic)
    if as_json:
        show_json({"topic": topic, "altered": True})
    else:
        show(f"{topic}: altered", "green")


@app.command()
def delete(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of topics.")],
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Do not fail if a topic does not exist.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Delete topics and all their messages."""
    from confluent_kafka import KafkaError, KafkaException

    admin = connect_admin(bootstrap)
    deleted: list[str] = []
    failed: list[Failure] = []
    for name, future in admin.delete_topics(topics, request_timeout=REQUEST_TIMEOUT_S).items():
        try:
            future.result()
            deleted.append(name)
        except KafkaException as problem:
            error = problem.args[0]
            if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART or not if_exists:
                failed.append(failure_of(error, name))
    if as_json:
        show_json({"deleted": deleted})
    else:
        for name in deleted:
            show(f"{name}: deleted", "green")
    if failed:
        raise Failure("; ".join(f.message for f in failed), failed[0].advice)


def _wait(future: Future[Any], topic: str) -> Any:
    from confluent_kafka import KafkaException

    try:
        return future.result()
    except KafkaException as problem:
        raise failure_of(problem.args[0], topic) from None


def _describe_partitions(
    admin: AdminClient, topic: str, metadata: TopicMetadata
) -> list[dict[str, Any]]:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    def offsets(spec: OffsetSpec) -> dict[int, int]:
        asked = {TopicPartition(topic, index): spec for index in metadata.partitions}
        answers = admin.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
        return {place.partition: _wait(f, topic).offset for place, f in answers.items()}

    start, end = offsets(OffsetSpec.earliest()), offsets(OffsetSpec.latest())
    return [
        {
            "partition": index,
            "leader": placed.leader,
            "replicas": list(placed.replicas),
            "isr": list(placed.isrs),
            "start": start[index],
            "end": end[index],
        }
        for index, placed in sorted(metadata.partitions.items())
    ]


def _describe_configs(admin: AdminClient, topic: str, every: bool) -> dict[str, str]:
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, topic)
    asked = admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
    entries = _wait(asked[resource], topic)
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {
        name: entry.value for name, entry in sorted(entries.items()) if every or entry.source == own
    }


def _alter_configs(
    admin: AdminClient, topic: str, changes: dict[str, str], removed: list[str]
) -> None:
    from confluent_kafka.admin import (
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    def entry(key: str, value: str | None, operation: AlterConfigOpType) -> ConfigEntry:
        return ConfigEntry(key, value, incremental_operation=operation)

    entries = [entry(key, value, AlterConfigOpType.SET) for key, value in changes.items()]
    entries += [entry(key, None, AlterConfigOpType.DELETE) for key in removed]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    asked = admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
    _wait(asked[resource], topic)
