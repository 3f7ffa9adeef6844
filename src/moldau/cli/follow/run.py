"""The run of a collector: state files, earlier deliveries, and the loop."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.cli.clients import (
    REQUEST_TIMEOUT_S,
    cluster_metadata,
    connect_consumer,
    connect_producer,
)
from moldau.cli.follow.collector import Collector
from moldau.cli.follow.followed import Followed
from moldau.cli.follow.read_back import partition_ends, read_back
from moldau.cli.follow.source import Arrived
from moldau.cli.follow.state import StateFile
from moldau.cli.stopping import stopping
from moldau.cli.views.messages import HeaderList, Outgoing, Parse
from moldau.cli.views.output import Failure, show

if TYPE_CHECKING:
    from confluent_kafka import Consumer


def follow(
    bootstrap: str,
    topic: str,
    files: Sequence[Path],
    *,
    state_folder: Path,
    parse: Parse,
    headers: HeaderList,
    partition: int | None,
    producer_settings: dict[str, Any],
) -> tuple[int, Failure | None]:
    """Collect until Ctrl-C or SIGTERM: how many lines were delivered, and what went wrong."""
    with stopping() as stop, ExitStack() as opened:
        # A message is never given up: the place does not move on without it.
        producer = connect_producer(
            bootstrap,
            delivery_report_only_error=False,
            enable_idempotence=True,
            acks="all",
            message_timeout_ms=0,
            **producer_settings,
        )
        count = _partition_count(producer, topic)
        cluster = cluster_metadata(producer).cluster_id
        consumer = connect_consumer(bootstrap, enable_partition_eof=True)
        opened.callback(consumer.close)
        paths = []
        for file in dict.fromkeys(map(_absolute, files)):
            followed = Followed(file, _state_file(state_folder, cluster, topic, file))
            opened.callback(followed.close)
            paths.append(followed)
        ends = partition_ends(consumer, topic, range(count))
        arrived = _arrived(consumer, topic, count, paths)
        for followed in paths:
            followed.resume(arrived, ends)

        def place(followed: Followed, message: Outgoing) -> int | None:
            chosen = partition if message.partition is None else message.partition
            if chosen is not None or message.key is not None:
                return chosen
            return zlib.crc32(str(followed.path).encode()) % count

        collector = Collector(producer, topic, paths, parse=parse, headers=headers, place=place)
        names = ", ".join(str(followed.path) for followed in paths)
        show(f"following {names} into {topic}; Ctrl-C stops", "dim", stderr=True)
        problem = collector.run(stop)
        return collector.delivered, problem


def _absolute(file: Path) -> Path:
    """Return the path without `..`, but with its last link kept: a link may come to lead
    elsewhere."""
    return file.parent.resolve() / file.name


def _partition_count(producer: Any, topic: str) -> int:
    from moldau.client.errors import ClientError
    from moldau.client.producer.placement import partition_count

    try:
        return partition_count(producer, topic, REQUEST_TIMEOUT_S)
    except ClientError as problem:
        raise Failure(str(problem)) from None


def _state_file(folder: Path, cluster: str | None, topic: str, file: Path) -> StateFile:
    try:
        return StateFile(folder, cluster or "", topic, file)
    except OSError as problem:
        raise Failure(
            f"the position in {file} could not be saved in {folder}: {problem.strerror}",
            "choose another folder with --state",
        ) from None


def _arrived(
    consumer: Consumer, topic: str, count: int, paths: Sequence[Followed]
) -> dict[str, Arrived]:
    """Return what crashed collectors delivered after their saved positions."""
    states = [f.state.saved for f in paths if f.state.saved is not None and not f.state.saved.clean]
    if not states:
        return {}
    # A partition that a state does not know is newer than the state.
    offsets = {p: min(state.offsets.get(str(p), 0) for state in states) for p in range(count)}
    ids = {known.id for state in states for known in state.files}
    show("the last run did not end cleanly; checking what it delivered", "dim", stderr=True)
    return read_back(consumer, topic, offsets, ids)
