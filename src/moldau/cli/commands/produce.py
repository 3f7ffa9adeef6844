"""`moldau produce`: lines from stdin or from files become messages."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from moldau.cli.clients import connect_producer, failure_of, with_fatal_errors
from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Topic, key_values
from moldau.cli.views.messages import BadLine, HeaderList, Outgoing, Parse, parse_json_line
from moldau.cli.views.output import Failure, ProgressBar, show, show_json
from moldau.client.connection import security_properties

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

MAX_MESSAGE_BYTES = 100_000_000
DEFAULT_TIMEOUT_S = 30.0


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


def produce(
    topic: Topic,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="With --follow: the files to follow."),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Collect the lines of growing and rotating files, until Ctrl-C or SIGTERM. "
            "Resumes where it stopped, even after a crash: no line is lost or sent twice. "
            "All lines of a file go to one partition, unless a key or --partition chooses "
            "another.",
        ),
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="D",
            file_okay=False,
            help="Folder where --follow keeps its position. Default: "
            "$XDG_STATE_HOME/moldau/follow.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", exists=True, dir_okay=False, help="Read this file instead of stdin."
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Split each line at the first TEXT: the key comes before it, the value after it.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A header for every message; may be repeated."),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Read lines as JSON objects with key, value, headers, partition and "
            "timestamp. The summary is JSON too.",
        ),
    ] = False,
    avro_schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Encode each JSON line as Avro with this schema, and register the schema. "
            "With --json, only the field `value` is encoded.",
        ),
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --avro-schema: the subject to register the schema under. Default: "
            "TOPIC-value.",
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Send to this partition. Default: chosen by the key."
        ),
    ] = None,
    compression: Annotated[
        Compression, typer.Option(metavar="none|gzip|snappy|lz4|zstd", help="Compression codec.")
    ] = Compression.NONE,
    acks: Annotated[
        Acks,
        typer.Option(
            metavar="0|1|all",
            help="Which brokers must have a message before it counts as delivered: none, the "
            "leader, or all in-sync replicas.",
        ),
    ] = Acks.ALL,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="S",
            help="Give up on a message after S seconds. Default: 30; --follow never gives up.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Send each line of stdin or of a file as a message."""
    from confluent_kafka import KafkaException

    from moldau.cli.access_checks import require_right
    from moldau.wire.acls import Operation

    if follow:
        _check_follow(files, file, acks, timeout)
    elif files or state is not None:
        raise typer.BadParameter("FILE... and --state need --follow; to send one file, use --file")
    if as_json and key_separator is not None:
        raise typer.BadParameter("--key-separator and --json cannot be used together")
    if key_separator == "":
        raise typer.BadParameter("it cannot be empty", param_hint="--key-separator")
    if subject is not None and avro_schema is None:
        raise typer.BadParameter("--subject needs --avro-schema")
    headers: HeaderList = [
        (name, value.encode()) for name, value in key_values(header or [], "--header").items()
    ]
    parse = parse_json_line if as_json else line_parser(key_separator)
    if avro_schema is not None:
        parse = _avro_parse(bootstrap, topic, avro_schema, subject, parse)
    settings = {
        "compression_type": compression.value,
        "linger_ms": 5,
        "message_max_bytes": MAX_MESSAGE_BYTES,
    }
    if follow:
        _follow(bootstrap, topic, files or [], state, parse, headers, partition, settings, as_json)
        return
    if security_properties():
        # librdkafka would say that it got no producer id.
        require_right(bootstrap, Operation.WRITE, topic)
    producer = connect_producer(
        bootstrap,
        acks=acks.value,
        enable_idempotence=acks is Acks.ALL,
        message_timeout_ms=int((timeout or DEFAULT_TIMEOUT_S) * 1000),
        **settings,
    )
    delivery = Delivery(producer, topic, headers, partition)
    problem = None
    try:
        problem = with_fatal_errors(lambda: _send_input(file, parse, delivery))
    except KafkaException as fatal:
        delivery.give_up(fatal.args[0])
    delivery.finish()
    _report(delivery, problem, as_json)


def _avro_parse(bootstrap: str, topic: str, file: Path, subject: str | None, parse: Parse) -> Parse:
    from moldau.cli.avro import avro_encoder, avro_parser, read_schema

    encode = avro_encoder(bootstrap, topic, read_schema(file), subject or f"{topic}-value")
    if parse is parse_json_line:
        return lambda line: parse_json_line(line, encode)
    return avro_parser(parse, encode)


def _check_follow(
    files: list[Path] | None, file: Path | None, acks: Acks, timeout: float | None
) -> None:
    if not files:
        raise typer.BadParameter("name the files to follow: --follow FILE...")
    if file is not None:
        raise typer.BadParameter("--file and --follow cannot be used together")
    if acks is not Acks.ALL:
        raise typer.BadParameter("--follow must not lose lines, so it needs --acks all")
    if timeout is not None:
        raise typer.BadParameter(
            "--follow never gives up on a message, so --timeout cannot be used with it"
        )
    for each in files:
        if each.exists() and not each.is_file():
            raise typer.BadParameter(f"{each} is not a regular file", param_hint="FILE")
        if not each.parent.is_dir():
            raise typer.BadParameter(f"{each.parent} is not a folder", param_hint="FILE")


def _follow(
    bootstrap: str,
    topic: str,
    files: list[Path],
    state: Path | None,
    parse: Parse,
    headers: HeaderList,
    partition: int | None,
    settings: dict[str, Any],
    as_json: bool,
) -> None:
    from moldau.cli.follow.run import follow
    from moldau.cli.follow.state import default_folder

    delivered, problem = follow(
        bootstrap,
        topic,
        files,
        state_folder=state or default_folder(),
        parse=parse,
        headers=headers,
        partition=partition,
        producer_settings=settings,
    )
    if as_json:
        show_json({"topic": topic, "delivered": delivered, "failed": int(problem is not None)})
    else:
        show(f"{topic}: {delivered} message{'s' if delivered != 1 else ''} delivered", "green")
    if problem is not None:
        raise problem


def line_parser(separator: str | None) -> Parse:
    """Return the reader of plain lines: all value, or key and value around the separator."""
    if separator is None:
        return lambda line: Outgoing(None, line, [])
    mark = separator.encode()

    def parse(line: bytes) -> Outgoing:
        key, found, value = line.partition(mark)
        if not found:
            raise BadLine(f"it has no key separator {separator!r}")
        return Outgoing(key, value, [])

    return parse


@dataclass(slots=True)
class Delivery:
    """The outcome of a run: each message is delivered, failed or never sent."""

    producer: Producer
    topic: str
    headers: HeaderList
    partition: int | None
    sent: int = 0
    failed: int = 0
    first_error: KafkaError | None = None
    hopeless: bool = False

    def send(self, message: Outgoing) -> None:
        """Queue one message; waits while the queue is full."""
        optional: dict[str, Any] = {}
        if message.timestamp_ms is not None:
            optional["timestamp"] = message.timestamp_ms
        partition = self.partition if message.partition is None else message.partition
        if partition is not None:
            optional["partition"] = partition
        while True:
            try:
                self.producer.produce(
                    self.topic,
                    message.value,
                    message.key,
                    headers=self.headers + message.headers,
                    on_delivery=self._failed,
                    **optional,
                )
                break
            except BufferError:
                self.producer.poll(0.1)
        self.sent += 1
        self.producer.poll(0)

    def finish(self) -> None:
        """Wait until every message is delivered or has failed; a second Ctrl-C gives up."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            while with_fatal_errors(lambda: self.producer.flush(0.5)):
                pass
        except KafkaException as problem:
            self.give_up(problem.args[0])
        except KeyboardInterrupt:
            self.producer.purge()
            self.producer.flush(1)
            waiting = len(self.producer)
            self.failed += waiting
            if waiting and self.first_error is None:
                self.first_error = KafkaError(KafkaError._PURGE_INFLIGHT)

    def give_up(self, fatal: KafkaError) -> None:
        """Nothing can be sent any more."""
        self.first_error = self.first_error or fatal
        self.hopeless = True
        self.producer.purge()
        self.producer.flush(1)
        self.failed += len(self.producer)

    def _failed(self, error: KafkaError | None, message: Message) -> None:
        from confluent_kafka import KafkaError

        if error is None:
            return
        self.failed += 1
        self.first_error = self.first_error or error
        # These concern one message; after any other error the rest would fail as well.
        self.hopeless |= error.code() not in (
            KafkaError.MSG_SIZE_TOO_LARGE,
            KafkaError.INVALID_RECORD,
            KafkaError.INVALID_TIMESTAMP,
            KafkaError._UNKNOWN_PARTITION,
        )


def _send_input(file: Path | None, parse: Parse, delivery: Delivery) -> Failure | None:
    """Send every line; the result is why it ended before the end of the input, if it did."""
    from confluent_kafka import KafkaException

    opened = file.open("rb") if file else nullcontext(sys.stdin.buffer)
    at_keyboard = file is None and sys.stdin.isatty()
    if at_keyboard:
        show("one message per line; stop with Ctrl-D", "dim", stderr=True)
    number = 0
    with opened as source, _bar(source, enabled=not at_keyboard) as bar:
        done = 0
        try:
            for number, line in enumerate(source, 1):
                text = line.removesuffix(b"\n").removesuffix(b"\r")
                message = parse(text)
                if message is not None:
                    delivery.send(message)
                done += len(line)
                if number % 1000 == 0:
                    bar.update(done)
                if delivery.hopeless:
                    return Failure(f"stopped reading at line {number}")
        except BadLine as problem:
            return Failure(
                f"line {number}: {problem}", "correct the line and send the rest from there"
            )
        except KafkaException as problem:
            return Failure(f"line {number}: {failure_of(problem.args[0]).message}")
        except KeyboardInterrupt:
            return None if at_keyboard else Failure(f"interrupted at line {number}")
    return None


def _bar(source: BinaryIO, *, enabled: bool) -> ProgressBar:
    size: int | None = None
    try:
        size = os.fstat(source.fileno()).st_size or None
    except OSError:
        pass
    visible = enabled and sys.stderr.isatty()
    return ProgressBar("Producing", size, enabled=visible, in_bytes=True)


def _report(delivery: Delivery, problem: Failure | None, as_json: bool) -> None:
    delivered = delivery.sent - delivery.failed
    topic = delivery.topic
    if as_json:
        show_json({"topic": topic, "delivered": delivered, "failed": delivery.failed})
    elif delivered or not (problem or delivery.failed):
        show(f"{topic}: {delivered} message{'s' if delivered != 1 else ''} delivered", "green")
    if delivery.failed:
        assert delivery.first_error is not None
        reason = failure_of(delivery.first_error, topic)
        message = f"{delivery.failed} of {delivery.sent} messages were not delivered"
        stopped = f"; {problem.message}" if problem else ""
        raise Failure(f"{message}: {reason.message}{stopped}", reason.advice)
    if problem:
        raise problem
