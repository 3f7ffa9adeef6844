"""A driver that copies a topic exactly once, and may die at a chosen point of a commit.

    python -m tests.torture.sink_driver FORM BOOTSTRAP SOURCE TARGET FOLDER MASTER [POINT NUMBER]

FORM is `pipeline`, or `stream` for `writeStream.format("moldau")`. It reads what is there and ends.
With a point, the whole process group is killed there, Java and all workers with it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from moldau.peer.connection import Connection
from moldau.peer.coordinators import Coordinators, PreparedTransaction
from moldau.spark.sink.commit_log import CommitLog
from moldau.spark.sink.commits import Decision, Ended, Entry
from tests.spark.standalone import ON_THIS_MACHINE

POINTS = ("before decision", "in decision", "after decision", "between ends", "after ends")
CONFIG = {
    **ON_THIS_MACHINE,
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
PIPELINE = """
bootstrap = "{bootstrap}"
checkpoint = "{folder}/checkpoint"
[spark]
{spark}
[sources.numbers]
topic = "{source}"
schema = "number BIGINT NOT NULL"
dead_letters = "{target}-letters"
max_records_per_batch = {per_batch}
[sinks.out]
from = "numbers"
type = "topic"
topic = "{target}"
"""


def die() -> None:
    os.killpg(0, signal.SIGKILL)


def arm(point: str, number: int) -> None:
    """Die at the point of the commit with that number, from 0 on."""
    commits_before = [number]
    append, receive, end_once = CommitLog.append, Connection.receive, Coordinators._end_once
    is_deciding = [False]

    def is_now(entries: Sequence[Entry], kind: type) -> bool:
        return any(isinstance(each, kind) for each in entries) and commits_before[0] == 0

    def appending(self: CommitLog, entries: Sequence[Entry], removed: Sequence[bytes] = ()) -> None:
        decides = is_now(entries, Decision)
        if decides and point == "before decision":
            die()
        if is_now(entries, Ended) and point == "after ends":
            die()
        is_deciding[0] = decides and point == "in decision"
        append(self, entries, removed)
        if decides and point == "after decision":
            die()
        if any(isinstance(each, Ended) for each in entries):
            commits_before[0] -= 1

    def receiving(self: Connection, asked: Any) -> Any:
        if is_deciding[0]:
            die()
        return receive(self, asked)

    def ending(
        self: Coordinators, left: Collection[PreparedTransaction], commits: bool
    ) -> list[tuple[PreparedTransaction, int]]:
        if point == "between ends" and commits_before[0] == 0 and commits:
            end_once(self, list(left)[:1], commits)
            die()
        return end_once(self, left, commits)

    CommitLog.append = appending  # type: ignore[method-assign]
    Connection.receive = receiving  # type: ignore[method-assign]
    Coordinators._end_once = ending  # type: ignore[method-assign]


def pipeline(bootstrap: str, source: str, target: str, folder: Path, master: str) -> None:
    from moldau.spark.pipeline import Pipeline

    file = folder / "copy.toml"
    spark = "\n".join(f'"{name}" = "{value}"' for name, value in CONFIG.items())
    file.write_text(
        PIPELINE.format(
            bootstrap=bootstrap, folder=folder, spark=spark, source=source, target=target,
            per_batch=os.environ.get("PER_BATCH", "60"),
        ),
        "utf-8",
    )  # fmt: skip
    Pipeline.load(file, master=master).run(once=True)


def stream(bootstrap: str, source: str, target: str, folder: Path, master: str) -> None:
    from moldau.spark import session

    spark = session("torture", master=master, config=CONFIG)
    rows = (
        spark.readStream.format("moldau")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", os.environ.get("PER_BATCH", "60"))
        .load()
    )
    query = (
        rows.select("key", "value")
        .writeStream.format("moldau")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("exactlyOnce", "true")
        .option("checkpointLocation", str(folder / "checkpoint-stream"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(
    form: str, bootstrap: str, source: str, target: str, folder: str, master: str, *die_at: str
) -> None:
    if die_at:
        arm(die_at[0], int(die_at[1]))
    {"pipeline": pipeline, "stream": stream}[form](bootstrap, source, target, Path(folder), master)


if __name__ == "__main__":
    main(*sys.argv[1:])
