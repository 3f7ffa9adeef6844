"""The loop of `moldau produce --follow`: read, send, wait, save."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from moldau.cli.clients import failure_of
from moldau.cli.follow.followed import Followed
from moldau.cli.follow.read_back import FILE_HEADER, POSITION_HEADER, position_header
from moldau.cli.follow.source import ContentChanged, LineTooLong, Piece, Source
from moldau.cli.views.messages import BadLine, HeaderList, Outgoing, Parse
from moldau.cli.views.output import Failure

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

SHORTEST_WAIT_S, LONGEST_WAIT_S = 0.02, 1.0
SAVE_EVERY_S = 1.0
STOP_WITHIN_S = 5.0
MAX_UNDER_WAY = 20_000
# How long a rotated file must have been quiet before its last line counts as finished.
QUIET_S = 5.0


class Line:
    """A line under way, and the callback of its delivery."""

    __slots__ = (
        "arrived_before",
        "collector",
        "done",
        "end",
        "offset",
        "partition",
        "source",
        "tail",
    )

    def __init__(self, collector: Collector, source: Source, piece: Piece) -> None:
        self.collector = collector
        self.source = source
        self.end = piece.end
        self.tail = source.advance(piece)
        self.done = False
        self.arrived_before = False
        self.partition = self.offset = -1
        source.in_flight += 1

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.collector.not_delivered(self, error)
            return
        self.partition, self.offset = message.partition() or 0, message.offset() or 0
        self.done = True
        self.collector.delivered += 1


class Collector:
    """Sends the lines of all followed paths; a place moves only over what is delivered.

    `place` chooses the partition of a line without a key, so that the lines of a path stay in
    order.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str,
        paths: Sequence[Followed],
        *,
        parse: Parse,
        headers: HeaderList,
        place: Callable[[Followed, Outgoing], int | None],
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._paths = paths
        self._parse = parse
        self._headers = headers
        self._place = place
        self._problem: Failure | None = None
        self._next_save = 0.0
        self._stop = threading.Event()
        self.delivered = 0

    def run(self, stop: threading.Event) -> Failure | None:
        """Collect until told to stop or something fails; everything is saved at the end."""
        self._stop = stop
        wait = SHORTEST_WAIT_S
        try:
            while not self._must_end:
                busy = False
                for followed in self._paths:
                    followed.scan()
                    busy |= self._collect(followed)
                busy |= self._settle()
                wait = SHORTEST_WAIT_S if busy else min(2 * wait, LONGEST_WAIT_S)
                if busy:
                    self._producer.poll(0)
                elif len(self._producer):
                    self._producer.poll(min(wait, 0.1))
                else:
                    stop.wait(wait)
        except Failure as failure:
            self._problem = self._problem or failure
        return self._finish()

    def not_delivered(self, line: Line, error: KafkaError) -> None:
        if self._problem is None:
            reason = failure_of(error, self._topic)
            where = self._name_of(line.source)
            self._problem = Failure(
                f"{where}, line that ends at byte {line.end}: {reason.message}", reason.advice
            )

    @property
    def _must_end(self) -> bool:
        return self._stop.is_set() or self._problem is not None

    def _collect(self, followed: Followed) -> bool:
        """Send what has come; true if there was anything."""
        busy = False
        for source in list(followed.sources):
            if not source.is_open:
                continue
            try:
                pieces = source.next_lines()
                if not pieces and source.rotated:
                    pieces = self._last_of(followed, source)
                if followed.changed:
                    followed.save()
                for piece in pieces:
                    if len(followed.under_way) >= MAX_UNDER_WAY or self._must_end:
                        source.look_again()
                        break
                    self._send(followed, source, piece)
                    busy = True
            except ContentChanged:
                followed.content_changed(source)
                busy = True
            except LineTooLong as problem:
                raise Failure(f"{followed.path}: {problem}") from None
        return busy

    def _last_of(self, followed: Followed, source: Source) -> list[Piece]:
        """Send the rest of a rotated file that has been quiet; drop one that is deleted."""
        if time.monotonic() < source.grown_at + QUIET_S:
            return []
        rest = source.unfinished()
        if rest is not None:
            return [rest]
        if source.is_deleted:
            followed.drop(source)
        return []

    def _send(self, followed: Followed, source: Source, piece: Piece) -> None:
        arrived = source.arrived_part(piece)
        if arrived:
            before = Line(self, source, Piece(piece.start, piece.content[:arrived]))
            before.done = before.arrived_before = True
            followed.under_way.append(before)
            piece = Piece(piece.start + arrived, piece.content[arrived:])
            if not piece.content:
                return
        try:
            message = self._parse(piece.content.removesuffix(b"\n").removesuffix(b"\r"))
        except BadLine as problem:
            raise Failure(
                f"{followed.path}, line at byte {piece.start}: {problem}",
                "correct it in the file and start again: it resumes there",
            ) from None
        line = Line(self, source, piece)
        followed.under_way.append(line)
        if message is None:
            line.done = True
            return
        checksum = zlib.crc32(piece.content)
        origin: HeaderList = [
            (FILE_HEADER, str(followed.path)),
            (
                POSITION_HEADER,
                position_header(source.id, piece.start, len(piece.content), checksum),
            ),
        ]
        self._produce(message, self._place(followed, message), origin, line)

    def _produce(
        self, message: Outgoing, partition: int | None, origin: HeaderList, line: Line
    ) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                self._producer.produce(
                    self._topic,
                    message.value,
                    message.key,
                    -1 if partition is None else partition,
                    on_delivery=line,
                    timestamp=message.timestamp_ms or 0,
                    headers=[*self._headers, *message.headers, *origin],
                )
                return
            except BufferError:
                if self._must_end:
                    return
                self._producer.poll(0.1)
            except KafkaException as problem:
                self.not_delivered(line, problem.args[0])
                return

    def _settle(self) -> bool:
        moved = False
        for followed in self._paths:
            moved |= followed.settle()
        if time.monotonic() >= self._next_save:
            for followed in self._paths:
                if followed.unsaved:
                    followed.save()
            self._next_save = time.monotonic() + SAVE_EVERY_S
        return moved

    def _finish(self) -> Failure | None:
        """Wait for what is under way, then write down where every file stands."""
        deadline = time.monotonic() + STOP_WITHIN_S
        try:
            while self._producer.flush(0.2) and time.monotonic() < deadline:
                pass
        except KeyboardInterrupt:
            pass
        left = 0
        for followed in self._paths:
            followed.settle()
            left += len(followed.under_way)
            followed.save(clean=not followed.under_way)
        if left and self._problem is None:
            return Failure(
                f"{left} line{' was' if left == 1 else 's were'} not delivered in time",
                "start again when the broker is back: nothing is lost",
            )
        return self._problem

    def _name_of(self, source: Source) -> str:
        for followed in self._paths:
            if source in followed.sources:
                return str(followed.path)
        return "a rotated file"
