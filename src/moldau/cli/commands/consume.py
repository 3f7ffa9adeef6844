"""`moldau consume`: messages of a topic onto stdout."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.avro import AvroDecoder
from moldau.cli.clients import (
    CLIENT_ID,
    REQUEST_TIMEOUT_S,
    connect_consumer,
    failure_of,
    failures,
    topic_metadata,
)
from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, Topic
from moldau.cli.share.reader import Share, check_share, read_as_sharer
from moldau.cli.stopping import stopping
from moldau.cli.views.messages import PLACEHOLDERS, Decode, compile_format, message_as_json
from moldau.cli.views.output import Failure, ProgressBar, leave_stdout, show

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

BATCH = 1000
# Long enough to be no load, short enough for Ctrl-C: signals wait while librdkafka polls.
POLL_S = 0.2

SESSION_TIMEOUT_S = 10.0

EARLIEST, LATEST = -2, -1


def consume(
    topic: Topic,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="G",
            help="Read as a member of this group. Members share the partitions, and the group "
            "resumes where it stopped. Printed messages are committed.",
        ),
    ] = None,
    share: Share = None,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning",
            help="Start at the earliest message. A group does so only where it has no committed "
            "offset.",
        ),
    ] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            metavar="N|-N|earliest|latest",
            help="Start at offset N, or N messages before the end, in each partition.",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="N", help="Only this partition; may be repeated."),
    ] = None,
    maximum: Annotated[
        int | None, typer.Option("--max", min=1, metavar="N", help="Stop after N messages.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, metavar="S", help="Stop when no message has arrived for S seconds."),
    ] = None,
    committed: Annotated[
        bool,
        typer.Option(
            "--committed",
            help="Print only committed messages: none of an aborted transaction, and none from "
            "the first open transaction on. Without this option, all are printed.",
        ),
    ] = False,
    template: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="TEXT",
            help="How to print a message. Placeholders: "
            + " ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            + r"; \n and \t work too.",
        ),
    ] = "{value}",
    avro: Annotated[
        bool,
        typer.Option(
            "--avro",
            help="Decode Avro values with a schema id and print them as JSON. A value that cannot "
            "be decoded is printed undecoded, and the exit status is 1.",
        ),
    ] = False,
    session_timeout: Annotated[
        float | None,
        typer.Option(
            min=1,
            metavar="S",
            help="With --group: seconds until others take over if this member dies. Default: 10.",
        ),
    ] = None,
    client_id: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --group: a name for this member. Default: moldau-cli.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Print the messages of a topic, from now on or from an earlier point.

    Runs until --max, --timeout or Ctrl-C. Without --group it reads every message and commits no
    offsets.
    """
    if from_beginning and offset is not None:
        raise typer.BadParameter("--from-beginning and --offset cannot be used together")
    if share is not None:
        check_share(share, group, offset, partition, committed)
    if group is not None:
        _check_group(group, offset, partition)
    elif session_timeout is not None or client_id is not None:
        raise typer.BadParameter("--session-timeout and --client-id need --group")
    decode = AvroDecoder(bootstrap) if avro else None
    try:
        render = _renderer(as_json, template, decode)
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--format") from None
    asked = parse_offset("earliest" if from_beginning else offset or "latest")

    connection = Connection()
    if share is not None:
        read_as_sharer(
            bootstrap, share, topic, render, connection, maximum, timeout, from_beginning
        )
        if decode is not None:
            decode.check()
        return
    # librdkafka's own default is to read committed messages.
    isolation = "read_committed" if committed else "read_uncommitted"
    if group is not None:
        start = "earliest" if from_beginning else "latest"
        session_ms = int((session_timeout or SESSION_TIMEOUT_S) * 1000)
        member = connect_consumer(
            bootstrap,
            on_error=connection.failed,
            group_id=group,
            auto_offset_reset=start,
            session_timeout_ms=session_ms,
            # Members learn from heartbeats that a rebalance is due.
            heartbeat_interval_ms=min(3000, session_ms // 8),
            client_id=client_id or CLIENT_ID,
            isolation_level=isolation,
        )
        count = _read_as_member(member, group, topic, render, connection, maximum, timeout)
    else:
        consumer = connect_consumer(
            bootstrap, on_error=connection.failed, isolation_level=isolation
        )
        count = _read(consumer, topic, partition or [], asked, render, connection, maximum, timeout)
    if committed and count != maximum:
        _tell_what_is_held_back(bootstrap, topic, partition or [])
    if decode is not None:
        decode.check()


def _renderer(as_json: bool, template: str, decode: Decode | None) -> Callable[[Message], bytes]:
    if as_json:
        return lambda message: message_as_json(message, decode)
    return compile_format(template, decode)


def _read(
    consumer: Consumer,
    topic: str,
    partitions: list[int],
    asked: tuple[int, bool],
    render: Callable[[Message], bytes],
    connection: Connection,
    maximum: int | None,
    timeout: float | None,
) -> int | None:
    """Return how many messages were printed; `maximum` if somebody had enough before."""
    try:
        with failures():
            points, backlog = starting_points(consumer, topic, partitions, asked)
            consumer.assign(points)
            total = backlog if maximum is None else min(backlog, maximum)
            return _print_messages(consumer, render, connection, maximum, timeout, total)
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        # The reader, such as `head`, has enough.
        leave_stdout()
    finally:
        consumer.close()
    return maximum


def _tell_what_is_held_back(bootstrap: str, topic: str, partitions: list[int]) -> None:
    """Say where an open transaction hides what follows, lest it look as if there were nothing."""
    from moldau.cli.requests import connect_cluster
    from moldau.peer.hanging import held_back, places_of

    try:
        with connect_cluster(bootstrap, retry_s=0) as cluster:
            places, _ = places_of(cluster, [topic])
            chosen = [place for place in places if not partitions or place[1] in partitions]
            held = held_back(cluster, chosen)
    except Failure as failure:
        show(f"open transactions are unknown: {failure.message}", "yellow", stderr=True)
        return
    for each in held:
        show(
            f"{topic} partition {each.place[1]}: nothing from offset {each.last_stable} on is "
            "shown until a transaction ends; see `moldau transactions list --state Ongoing`",
            "yellow",
            stderr=True,
        )


def _check_group(group: str, offset: str | None, partition: list[int] | None) -> None:
    if not group:
        raise typer.BadParameter("it cannot be empty", param_hint="--group")
    if offset is not None:
        raise typer.BadParameter(
            "--offset and --group cannot be used together: a group resumes at "
            "its committed offsets. To move it, use `moldau groups reset`"
        )
    if partition:
        raise typer.BadParameter(
            "--partition and --group cannot be used together: the group "
            "assigns partitions to its members"
        )


def _read_as_member(
    consumer: Consumer,
    group: str,
    topic: str,
    render: Callable[[Message], bytes],
    connection: Connection,
    maximum: int | None,
    timeout: float | None,
) -> int | None:
    """As `_read` does."""
    from moldau.cli.group_reader import GroupReader

    reader = GroupReader(consumer, group, topic, render)
    ended: int | None = maximum
    try:
        topic_metadata(consumer, topic)
        with stopping() as stop:
            reader.run(stop, maximum, timeout, connection.works)
            ended = maximum if stop.is_set() else reader.count
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        leave_stdout()
    finally:
        consumer.close()
    connection.check(reader.count)
    return ended


class Connection:
    """The state of librdkafka's connections; reports once when it has lost all brokers."""

    def __init__(self) -> None:
        self.lost = False

    def failed(self, error: KafkaError) -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._ALL_BROKERS_DOWN and not self.lost:
            self.lost = True
            show("connection lost; waiting for the broker", "yellow", stderr=True)

    def works(self) -> None:
        self.lost = False

    def check(self, printed: int) -> None:
        """Failure if there is no broker at the end."""
        if self.lost:
            raise Failure(
                f"the connection was lost after {printed} message{'' if printed == 1 else 's'}",
                "`moldau doctor` checks the connection step by step",
            )


def parse_offset(text: str) -> tuple[int, bool]:
    """(number, counts from the end) of an --offset; wrong usage if it is none.

    Earliest and latest are the protocol's EARLIEST and LATEST, not counted from the end.
    """
    named = {"earliest": EARLIEST, "latest": LATEST}
    if text in named:
        return named[text], False
    try:
        number = int(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a number, earliest or latest", param_hint="--offset"
        ) from None
    return abs(number), number < 0


def starting_points(
    consumer: Consumer, topic: str, only: list[int], asked: tuple[int, bool]
) -> tuple[list[TopicPartition], int]:
    """Return where to start in each partition, and how many messages lie ahead now."""
    from confluent_kafka import TopicPartition

    known = topic_metadata(consumer, topic).partitions
    for index in only:
        if index not in known:
            last = len(known) - 1
            raise Failure(f"topic {topic} has no partition {index}; it has 0 to {last}")
    chosen = sorted(set(only)) or sorted(known)

    def look_up(which: int) -> list[int]:
        places = [TopicPartition(topic, index, which) for index in chosen]
        found = consumer.offsets_for_times(places, timeout=REQUEST_TIMEOUT_S)
        for place in found:
            if place.error is not None:
                raise failure_of(place.error, topic)
        return [place.offset for place in sorted(found, key=lambda place: place.partition)]

    number, from_end = asked
    points, backlog = [], 0
    for index, first, end in zip(chosen, look_up(EARLIEST), look_up(LATEST), strict=True):
        if from_end:
            point = max(first, end - number)
        elif number == EARLIEST:
            point = first
        elif number == LATEST:
            point = end
        elif first <= number <= end:
            point = number
        else:
            raise Failure(
                f"{topic} partition {index} holds offsets {first} to {end}, not {number}",
                "choose an offset in this range, or --from-beginning",
            )
        points.append(TopicPartition(topic, index, point))
        backlog += end - point
    return points, backlog


def _print_messages(
    consumer: Consumer,
    render: Callable[[Message], bytes],
    connection: Connection,
    maximum: int | None,
    timeout: float | None,
    total: int,
) -> int:
    out = sys.stdout.buffer
    visible = sys.stderr.isatty() and not sys.stdout.isatty()
    printed = 0
    last_arrival = time.monotonic()
    with ProgressBar("Consuming", total or None, enabled=visible) as bar:
        while maximum is None or printed < maximum:
            wait = POLL_S
            if timeout is not None:
                wait = min(wait, last_arrival + timeout - time.monotonic())
                if wait <= 0:
                    break
            first = consumer.poll(wait)
            if first is None:
                continue
            limit = BATCH if maximum is None else min(BATCH, maximum - printed)
            messages = [first, *(consumer.consume(limit - 1, 0) if limit > 1 else ())]
            lines = []
            for message in messages:
                error = message.error()
                if error is not None:
                    raise failure_of(error, message.topic() or "")
                lines.append(render(message))
            out.write(b"".join(lines))
            out.flush()
            printed += len(messages)
            connection.works()
            bar.update(printed)
            last_arrival = time.monotonic()
    connection.check(printed)
    return printed
