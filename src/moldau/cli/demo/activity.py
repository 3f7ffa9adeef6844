"""The second act of `moldau demo`: page views through a Spark pipeline, watched and then proved."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.resources import files
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import moldau
from moldau.cli.clients import connect_producer
from moldau.cli.demo.page_views import TOPIC, Activity, PageView
from moldau.cli.demo.proof import prove
from moldau.cli.demo.tables import Lake, show_progress, show_results, show_totals
from moldau.cli.stopping import stopping
from moldau.cli.views.output import Failure, show

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer
    from pyspark.sql import SparkSession

    from moldau.cli.demo.story import Story
    from moldau.client.pipelines.status import PipelineStatus
    from moldau.spark.pipeline import Pipeline, SinkProgress

EXAMPLE = "activity/pipeline.toml"
VIEWS_PER_S = 200.0
# Much less than the pipeline's watermark allows, so that no partition gets ahead of the other.
STEP = timedelta(seconds=4)
STEP_EVERY_S = 0.25
TABLES_EVERY_S = 5.0
STALLED_AFTER_S = 180.0
DELIVER_WITHIN_S = 30.0
# With --keep, the site's time goes on as fast as ours.
LIVE_STEP_EVERY_S = STEP.total_seconds()


def tell_of_activity(story: Story, folder: Path, *, events: int, seed: int, keep: bool) -> None:
    """Failure when the results are not what the produced views come to."""
    from moldau.spark.pipeline import Pipeline, PipelineError

    path = example_file()
    story.tell(
        "Second act. People look around in a web shop, and every page view is an event. Their",
        "topic has two partitions; the key is the user.",
    )
    story.run(f"topics create {TOPIC} --partitions 2")
    story.tell(
        "A pipeline is a file: it keeps every event in a Delta table, and computes views per page",
        "and minute, error rates and sessions into tables and a topic.",
    )
    show(_without_comments(path), "dim")
    pipeline = Pipeline.load(path, bootstrap=story.address, folder=folder)
    lake = Lake.of(pipeline)
    views = iter(Activity(seed, views_per_s=VIEWS_PER_S))
    story.tell("Spark starts; then the views come, and the results change as they do.")
    show(f"$ moldau pipeline run {shlex.quote(str(path))}", "green")
    try:
        with _spark(pipeline) as spark:
            produced = list(islice(views, events))
            _run_live(pipeline, spark, story.address, produced, lake)
            story.tell(
                f"All {events:,} events are produced. What is left is read, and the windows that",
                "are still open are written as they stand.",
            )
            show(f"$ moldau pipeline run {shlex.quote(str(path))} --once --emit-open", "green")
            pipeline.supervise(once=True, emit_open=True, spark=spark)
            show_totals(lake)
            story.tell("Is it right? Everything is computed again from the events in the table.")
            prove(lake, produced, story.address)
            if keep:
                _go_on(pipeline, spark, story, views, folder)
    except PipelineError as problem:
        raise Failure(f"the pipeline failed: {problem}") from None


def example_file() -> Path:
    """Return the pipeline file: in the installed package, or beside `src` in the repository."""
    shipped = Path(str(files(moldau))) / "examples" / EXAMPLE
    in_repository = Path(str(files(moldau))).parents[1] / "examples" / EXAMPLE
    for path in (shipped, in_repository):
        if path.is_file():
            return path
    raise Failure(
        f"the example {EXAMPLE} is neither at {shipped} nor at {in_repository}",
        "reinstall moldau",
    )


def _without_comments(path: Path) -> str:
    lines = path.read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#")).strip()


@contextmanager
def _spark(pipeline: Pipeline) -> Iterator[SparkSession]:
    from moldau.spark import session

    settings = {"spark.driver.memory": "1g", "spark.sql.session.timeZone": "UTC"}
    spark = session("moldau demo", config=settings)
    gateway: Any = spark.sparkContext._gateway
    try:
        yield spark
    finally:
        spark.stop()
        # Java ends when its parent is gone, and removes its scratch files.
        gateway.shutdown()
        if gateway.proc.stdin is not None:
            gateway.proc.stdin.close()
        gateway.proc.wait(DELIVER_WITHIN_S)
        type(spark.sparkContext)._gateway = None


@dataclass(slots=True)
class _Feed:
    """Page views on their way to the topic, a few seconds of the site's time at once."""

    address: str
    step_every_s: float
    stop: threading.Event = field(default_factory=threading.Event)
    sent: int = 0
    is_done: bool = False
    problem: str = ""

    def run(self, views: Iterator[PageView]) -> None:
        """For a thread of its own."""
        try:
            producer = connect_producer(self.address, linger_ms=20)
            for _, step in groupby(views, key=_step_of):
                due = time.monotonic() + self.step_every_s
                self._send(producer, list(step))
                if self.stop.wait(max(0.0, due - time.monotonic())):
                    break
        except (Failure, BufferError) as problem:
            self.problem = str(problem)
        self.is_done = True

    def _send(self, producer: Producer, views: list[PageView]) -> None:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.problem = error.str()

        for view in views:
            producer.produce(TOPIC, view.encode(), view.key, on_delivery=note)
        # All of a step is there before the next one begins, in both partitions.
        left = producer.flush(DELIVER_WITHIN_S)
        if left or self.problem:
            raise Failure(f"{left} events were not delivered: {self.problem or 'no answer'}")
        self.sent += len(views)


def _step_of(view: PageView) -> int:
    return int(view.time.timestamp() // STEP.total_seconds())


def _run_live(
    pipeline: Pipeline, spark: SparkSession, address: str, produced: list[PageView], lake: Lake
) -> None:
    """Run the pipeline beside the feed until every sink has read every event."""
    feed = _Feed(address, STEP_EVERY_S)
    enough = threading.Event()
    watch = _Watch(feed, lake, enough, len(produced), sinks=len(pipeline.settings.sinks))
    threads = [
        threading.Thread(target=feed.run, args=(iter(produced),), daemon=True),
        threading.Thread(target=watch.run, daemon=True),
    ]

    def begin(status: PipelineStatus) -> None:
        if status.state == "running" and threads[0].ident is None:
            for thread in threads:
                thread.start()

    try:
        pipeline.supervise(spark=spark, stop=enough, on_progress=watch.note, on_status=begin)
    finally:
        feed.stop.set()
        enough.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join(DELIVER_WITHIN_S)
    if watch.problem:
        raise Failure(watch.problem)


class _Watch:
    """Sees how far the sinks are, shows it from time to time, and says when it is enough."""

    def __init__(
        self, feed: _Feed, lake: Lake, enough: threading.Event, wanted: int, sinks: int
    ) -> None:
        self._feed = feed
        self._lake = lake
        self._enough = enough
        self._wanted = wanted
        self._sinks = sinks
        self._progress: dict[str, SinkProgress] = {}
        self._moved = time.monotonic()
        self._counted = 0
        self.problem = ""

    def note(self, progress: SinkProgress) -> None:
        """For the thread that follows the pipeline."""
        before = self._progress.get(progress.sink)
        if before is None or before.rows != progress.rows:
            self._moved = time.monotonic()
        self._progress = self._progress | {progress.sink: progress}
        rows = [each.rows for each in self._progress.values()]
        if len(rows) == self._sinks and min(rows) >= self._wanted:
            self._enough.set()

    def run(self) -> None:
        """For a thread of its own, as Spark says nothing while a batch takes long."""
        while not self._enough.wait(TABLES_EVERY_S):
            if self._feed.problem:
                self.problem = f"the events could not be produced: {self._feed.problem}"
            elif time.monotonic() - self._moved > STALLED_AFTER_S:
                self.problem = f"the pipeline read nothing more for {STALLED_AFTER_S:g} s"
            if self.problem:
                self._enough.set()
                return
            show_progress(self._feed.sent, self._progress.values())
            self._counted = show_results(self._lake, self._counted)


def _go_on(
    pipeline: Pipeline, spark: SparkSession, story: Story, views: Iterator[PageView], folder: Path
) -> None:
    """Views come and are counted until Ctrl-C."""
    feed = _Feed(story.address, LIVE_STEP_EVERY_S)
    thread = threading.Thread(target=feed.run, args=(views,), daemon=True)

    def begin(status: PipelineStatus) -> None:
        if status.state == "running" and thread.ident is None:
            thread.start()
            _suggest(pipeline, story, folder)

    with stopping() as stop:
        try:
            pipeline.supervise(spark=spark, stop=stop, on_status=begin)
        finally:
            feed.stop.set()
            if thread.ident is not None:
                thread.join(DELIVER_WITHIN_S)
    if feed.problem:
        raise Failure(f"the events could not be produced: {feed.problem}")


def _suggest(pipeline: Pipeline, story: Story, folder: Path) -> None:
    story.tell(
        "Everything keeps running, with new views every few seconds. To "
        "explore, try in another terminal:"
    )
    show(f"export MOLDAU_BOOTSTRAP={story.address}", "green")
    for command in (
        f"moldau consume {TOPIC}",
        "moldau consume views-per-minute --from-beginning",
        "moldau groups describe activity-pipeline",
        "moldau topics describe views-per-minute",
        "moldau pipeline status activity",
    ):
        show(command, "green")
    table = Lake.of(pipeline).views
    program = (
        "from deltalake import DeltaTable, QueryBuilder; "
        f"lake = QueryBuilder().register('views', DeltaTable('{table}')); "
        "print(lake.execute('SELECT * FROM views').read_all())"
    )
    show(f'{sys.executable} -c "{program}"', "green")
    show(f"\nThe data is in {folder}. Ctrl-C stops everything.", "bold")
