"""Deaths of a driver at a chosen point of a commit, in whichever process that is made.

`to_topic` and pipelines commit in the driver itself. What `format("moldau")` writes is committed in
a process that Spark starts for it: there `DyingSink` stands in, which is the same but for the end.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from pyspark.sql.datasource import (
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from moldau.peer.connection import Connection
from moldau.peer.coordinators import Coordinators, PreparedTransaction
from moldau.spark.sink.commit_log import CommitLog
from moldau.spark.sink.commits import Decision, Ended, Entry, Over
from moldau.spark.sink.committing import parts_of
from moldau.spark.sink.options import SinkOptions
from moldau.spark.sink.sink import BatchWriter, StreamWriter
from moldau.spark.source.source import MoldauSource

POINTS = ("before decision", "in decision", "after decision", "between ends", "after ends")


class Death(msgspec.Struct, frozen=True):
    """Where to die: at this point of a commit to that topic, of even or of odd number."""

    point: str
    topic: str
    parity: int
    driver: int = 0


def arm(death: Death, *, skips: int = 0, everything: bool = False) -> None:
    """Kill the driver's process group, and this process, at the point of the next commit.

    That is the next one to the topic after `skips` of them, or with `everything` to any topic.
    """
    to_skip = [skips]
    append, receive, end_once = CommitLog.append, Connection.receive, Coordinators._end_once
    # Batches of several queries are committed by threads of their own.
    here = threading.local()

    def is_meant(query: str) -> bool:
        return everything or query.endswith(f"/{death.topic}")

    def die() -> None:
        os.killpg(death.driver, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def appending(self: CommitLog, entries: Sequence[Entry], removed: Sequence[bytes] = ()) -> None:
        decides = any(isinstance(each, Decision) and is_meant(each.query) for each in entries)
        # A single write is over when it has ended.
        ends = any(
            (isinstance(each, Ended) and is_meant(each.query))
            or (isinstance(each, Over) and everything)
            for each in entries
        )
        is_now = to_skip[0] == 0
        if is_now and (
            (decides and death.point == "before decision") or (ends and death.point == "after ends")
        ):
            die()
        here.is_deciding = is_now and decides and death.point == "in decision"
        append(self, entries, removed)
        here.is_deciding = False
        if is_now and decides and death.point == "after decision":
            die()
        if ends:
            to_skip[0] -= 1

    def receiving(self: Connection, asked: Any) -> Any:
        if getattr(here, "is_deciding", False):
            die()
        return receive(self, asked)

    def ending(
        self: Coordinators, left: Collection[PreparedTransaction], commits: bool
    ) -> list[tuple[PreparedTransaction, int]]:
        some = list(left)
        is_now = commits and to_skip[0] == 0 and is_meant(parts_of(some[0].id)[0])
        if is_now and death.point == "between ends":
            end_once(self, some[:1], commits)
            die()
        return end_once(self, left, commits)

    CommitLog.append = appending  # type: ignore[method-assign]
    Connection.receive = receiving  # type: ignore[method-assign]
    Coordinators._end_once = ending  # type: ignore[method-assign]


class DyingSink(MoldauSource):
    """`format("moldau-dying")` with the option `death`: `format("moldau")` up to that."""

    @classmethod
    def name(cls) -> str:
        return "moldau-dying"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return _DyingBatch(SinkOptions.parse(self.options, schema, strict=False), self._death())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return _DyingStream(SinkOptions.parse(self.options, schema, strict=False), self._death())

    def _death(self) -> Death:
        return msgspec.json.decode(self.options["death"], type=Death)


class _DyingBatch(BatchWriter):
    def __init__(self, options: SinkOptions, death: Death) -> None:
        super().__init__(options)
        self._death = death

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        arm(self._death, everything=True)
        super().commit(messages)


class _DyingStream(StreamWriter):
    def __init__(self, options: SinkOptions, death: Death) -> None:
        super().__init__(options)
        self._death = death

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        if batchId % 2 == self._death.parity:
            arm(self._death, everything=True)
        super().commit(messages, batchId)
