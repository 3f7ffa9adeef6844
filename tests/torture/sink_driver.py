"""A driver that copies a topic exactly once in every form that the sink has, at its orders.

    python -m tests.torture.sink_driver BOOTSTRAP FOLDER MASTER

Orders come as lines of JSON. For each, all of its forms run at once in the same session, until they
have read what is there:

    stream     `writeStream.format("moldau")` to the topic "stream"
    batches    `foreachBatch`: `to_topic` to the topic "batches", and `write.format("moldau")` with
               txnAppId and txnVersion to the topic "marked"
    pipeline   a pipeline to the topic "pipeline", with dead letters
    write      `df.write.format("moldau")` to the topic "write", several times
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from moldau.spark import session, to_topic
from moldau.spark.lake.tasks import map_in_arrow
from moldau.spark.pipeline import Pipeline
from moldau.spark.pipeline.run.running import Running
from tests.spark.standalone import ON_THIS_MACHINE
from tests.torture.sink_deaths import Death, DyingSink, arm

FORMS = ("stream", "batches", "pipeline", "write")
TOPICS = ("stream", "batches", "marked", "pipeline", "write")
# Which form writes to a topic.
FORM_OF = {
    "stream": "stream",
    "batches": "batches",
    "marked": "batches",
    "pipeline": "pipeline",
    "write": "write",
}
PER_BATCH = 40
WRITES = 2
ROWS_OF_A_WRITE = 20
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.minTaskRuntime": "1s",
}
CONFIG = {
    **ON_THIS_MACHINE,
    **SPECULATION,
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.scheduler.mode": "FAIR",
}
PIPELINE = """
bootstrap = "{bootstrap}"
checkpoint = "{folder}/checkpoint-pipeline"
[sources.numbers]
topic = "numbers"
schema = "number BIGINT NOT NULL"
dead_letters = "pipeline-letters"
max_records_per_batch = {per_batch}
[sinks.out]
from = "numbers"
type = "topic"
topic = "pipeline"
"""
# A task that is slow waits no longer for the attempt that overtakes it.
STRAGGLES_S = 30.0


class Order(msgspec.Struct):
    """Run these forms; die there; let a task of this form wait for a second attempt at it."""

    number: int
    forms: tuple[str, ...] = FORMS
    death: Death | None = None
    straggler: str | None = None

    @property
    def labels(self) -> list[str]:
        """The names of its single writes."""
        return [f"{self.number}.{number}" for number in range(WRITES)]


class Answer(msgspec.Struct):
    """Which forms failed, and why."""

    number: int
    failures: dict[str, str]


class Run:
    """One order."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path, order: Order) -> None:
        self._spark = spark
        self._folder = folder
        self._bootstrap = bootstrap
        self._options = {"kafka.bootstrap.servers": bootstrap, "exactlyOnce": "true"}
        self._order = order

    def do(self) -> Answer:
        running: dict[str, Callable[[], object]] = {}
        failures: dict[str, str] = {}
        start: dict[str, Callable[[], Callable[[], object]]] = {
            "stream": lambda: self._stream().awaitTermination,
            "batches": lambda: self._batches().awaitTermination,
            "pipeline": lambda: _until_it_ends(self._pipeline()),
            "write": lambda: self._write,
        }
        for form in self._order.forms:
            try:
                running[form] = start[form]()
            except Exception as problem:
                failures[form] = str(problem)
        # The writes are made here, and the other forms run beside them.
        for form in sorted(running, key=lambda form: form != "write"):
            try:
                running[form]()
            except Exception as problem:
                failures[form] = str(problem)
        return Answer(self._order.number, failures)

    def _rows(self) -> DataFrame:
        return (
            self._spark.readStream.format("moldau")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", "numbers")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(PER_BATCH))
            .load()
            .select("value")
        )

    def _stream(self) -> StreamingQuery:
        rows = self._slowed(self._rows(), "stream")
        name, options = self._format("stream")
        writer = rows.writeStream.format(name).options(**options).option("topic", "stream")
        return self._started(writer, "stream")

    def _batches(self) -> StreamingQuery:
        send = to_topic("batches", **self._options)
        name, options = self._format("marked")

        def write(batch: DataFrame, number: int) -> None:
            frame = self._slowed(batch, "batches")
            send(frame, number)
            death = self._order.death
            is_last = death is not None and death.parity == number % 2
            (
                frame.write.format(name if is_last else "moldau")
                .options(**options)
                .option("topic", "marked")
                .option("txnAppId", "torture")
                .option("txnVersion", str(number))
                .mode("append")
                .save()
            )

        return self._started(self._rows().writeStream.foreachBatch(write), "batches")

    def _started(self, writer: Any, form: str) -> StreamingQuery:
        query: StreamingQuery = (
            writer.option("checkpointLocation", str(self._folder / f"checkpoint-{form}"))
            .trigger(availableNow=True)
            .start()
        )
        return query

    def _pipeline(self) -> Running:
        file = self._folder / "copy.toml"
        text = PIPELINE.format(bootstrap=self._bootstrap, folder=self._folder, per_batch=PER_BATCH)
        file.write_text(text, "utf-8")
        return Pipeline.load(file).start(self._spark, once=True)

    def _write(self) -> None:
        for number, label in enumerate(self._order.labels):
            death = self._order.death
            is_last = death is not None and death.parity == number
            name, options = self._format("write")
            rows = self._spark.range(0, ROWS_OF_A_WRITE, 1, 2)
            frame = self._slowed(rows.selectExpr(f"concat('{label} ', id) AS value"), "write")
            writer = frame.write.format(name if is_last else "moldau").options(**options)
            writer.option("topic", "write").mode("append").save()
            print(f"wrote {label}", flush=True)

    def _format(self, topic: str) -> tuple[str, dict[str, str]]:
        """The name of the sink, and its options."""
        death = self._order.death
        if death is None or death.topic != topic:
            return "moldau", self._options
        return "moldau-dying", {**self._options, "death": msgspec.json.encode(death).decode()}

    def _slowed(self, frame: DataFrame, form: str) -> DataFrame:
        if self._order.straggler != form:
            return frame
        flag, overtaken = str(self._folder / "straggle"), str(self._folder / "overtaken")

        # Within the method, as executors do not have this module: so it is sent whole.
        def slowly(batches: Iterator[Any]) -> Iterator[Any]:
            context = TaskContext.get()
            assert context is not None
            yield from batches
            # Its rows may be staged by now.
            if context.partitionId() != 1:
                return
            if context.attemptNumber():
                Path(overtaken).touch()
            deadline = time.monotonic() + STRAGGLES_S
            while (
                not context.attemptNumber() and Path(flag).exists() and time.monotonic() < deadline
            ):
                time.sleep(0.05)

        kind = frame.schema["value"].dataType.simpleString()
        return map_in_arrow(frame, slowly, f"value {kind}")


def _until_it_ends(running: Running) -> Callable[[], None]:
    def wait() -> None:
        with running:
            running.wait()

    return wait


def main(bootstrap: str, folder: str, master: str) -> None:
    spark = session("torture", master=master, config=CONFIG)
    spark.dataSource.register(DyingSink)
    print("ready", flush=True)
    for line in sys.stdin:
        order = msgspec.json.decode(line, type=Order)
        death = order.death
        if death is not None and death.topic in ("batches", "pipeline"):
            arm(death, skips=death.parity)
        answer = Run(spark, bootstrap, Path(folder), order).do()
        print("answer", msgspec.json.encode(answer).decode(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
