"""`moldau consume --share`: one member of a share group, which acknowledges what it has printed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from moldau.cli.clients import CLIENT_ID, failure_of, failures, require_broker
from moldau.cli.stopping import stopping
from moldau.cli.views.output import Failure, leave_stdout
from moldau.client.connection import librdkafka_settings

if TYPE_CHECKING:
    from confluent_kafka import Message, ShareConsumer

POLL_S = 0.2
MOST_AT_ONCE = 500
# A share group begins to deliver once its first member has been assigned partitions.
JOIN_WITHIN_S = 10.0

Render = Callable[["Message"], bytes]


Share = Annotated[
    str | None,
    typer.Option(
        metavar="G",
        help="Take messages as a member of this share group, as from a queue: each goes to one "
        "member, and is acknowledged once printed.",
    ),
]


class Watched(Protocol):
    """A connection whose losses are told."""

    def failed(self, error: Any) -> None: ...

    def works(self) -> None: ...

    def check(self, printed: int) -> None: ...


def connect_share_consumer(
    bootstrap: str, group: str, most: int | None, on_error: Callable[[Any], None]
) -> ShareConsumer:
    """Connect a member of a share group that takes no more than it may print."""
    from confluent_kafka import ShareConsumer

    return ShareConsumer(
        librdkafka_settings(
            bootstrap,
            {},
            defaults={
                "group.id": group,
                "client.id": CLIENT_ID,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": min(most or MOST_AT_ONCE, MOST_AT_ONCE),
                "error_cb": on_error,
            },
        )
    )


class ShareReader:
    """Prints messages as a member of a share group.

    A message is acknowledged once stdout has taken it. What was taken but not printed is released,
    and another member gets it.
    """

    def __init__(self, consumer: ShareConsumer, topic: str, render: Render) -> None:
        self._consumer = consumer
        self._topic = topic
        self._render = render
        self._out = sys.stdout.buffer
        self.count = 0

    def run(
        self,
        stop: threading.Event,
        maximum: int | None,
        timeout: float | None,
        on_message: Callable[[], None],
    ) -> None:
        """Print until told to stop, or so many, or until none came for `timeout` seconds."""
        with failures():
            self._consumer.subscribe([self._topic])
            last_arrival = time.monotonic()
            waits_s = timeout if timeout is None else max(timeout, JOIN_WITHIN_S)
            while not stop.is_set() and (maximum is None or self.count < maximum):
                messages = self._consumer.poll(POLL_S)
                if messages:
                    self._print([*messages], maximum)
                    on_message()
                    last_arrival, waits_s = time.monotonic(), timeout
                elif waits_s is not None and time.monotonic() - last_arrival >= waits_s:
                    return

    def _print(self, messages: list[Message], maximum: int | None) -> None:
        from confluent_kafka import AcknowledgeType

        good: list[Message] = []
        for message in messages:
            error = message.error()
            if error is not None:
                raise failure_of(error, message.topic() or "")
            good.append(message)
        room = len(good) if maximum is None else maximum - self.count
        try:
            for message in good[:room]:
                self._out.write(self._render(message))
            self._out.flush()
        except BaseException:
            room = 0
            raise
        finally:
            for number, message in enumerate(good):
                is_printed = number < room
                kind = AcknowledgeType.ACCEPT if is_printed else AcknowledgeType.RELEASE
                self._consumer.acknowledge(message, kind)
            self.count += min(room, len(good))
            self._commit()

    def _commit(self) -> None:
        for partition, problem in self._consumer.commit_sync(30.0).items():
            if problem is not None:
                place = f"{partition.topic} partition {partition.partition}"
                raise Failure(
                    f"printed messages of {place} were not acknowledged: {problem.args[0].str()}",
                    "they are delivered again",
                )


def check_share(
    share: str,
    group: str | None,
    offset: str | None,
    partition: list[int] | None,
    committed: bool,
) -> None:
    """Wrong usage if --share is given with options that mean nothing to share groups."""
    if not share:
        raise typer.BadParameter("it cannot be empty", param_hint="--share")
    if group is not None or offset is not None or partition:
        raise typer.BadParameter(
            "--share cannot be used with --group, --offset or --partition: the broker decides "
            "which member gets which message"
        )
    if committed:
        raise typer.BadParameter(
            "--share and --committed cannot be used together: set the group's "
            "share.isolation.level instead"
        )


def read_as_sharer(
    bootstrap: str,
    group: str,
    topic: str,
    render: Callable[[Message], bytes],
    connection: Watched,
    maximum: int | None,
    timeout: float | None,
    from_beginning: bool,
) -> None:
    """Print messages as a member of a share group until --max, --timeout or Ctrl-C."""
    from moldau.client.errors import ClientError
    from moldau.client.queue.beginning import begin_at

    require_broker(bootstrap)
    if from_beginning:
        try:
            begin_at(bootstrap, group, "earliest")
        except ClientError as problem:
            raise Failure(str(problem)) from None
    consumer = connect_share_consumer(bootstrap, group, maximum, connection.failed)
    reader = ShareReader(consumer, topic, render)
    try:
        with stopping() as stop:
            reader.run(stop, maximum, timeout, connection.works)
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        leave_stdout()
    finally:
        consumer.close()
    connection.check(reader.count)
