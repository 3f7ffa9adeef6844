"""A pipeline: a file that says where records come from, what SQL does, and where results go."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from moldau.spark.pipeline.errors import PipelineError, Problem
from moldau.spark.pipeline.file.file import Override, PipelineFile, read_file
from moldau.spark.pipeline.file.settings import PipelineSettings, TopicSink
from moldau.spark.pipeline.run.checkpoint import Checkpoint
from moldau.spark.pipeline.run.progress import SinkProgress
from moldau.spark.pipeline.supervision.sessions import Sessions, active_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.client.pipelines.status import PipelineStatus
    from moldau.schemas.catalog import SchemaCatalog
    from moldau.spark.pipeline.plan.last_reading import LastReading
    from moldau.spark.pipeline.plan.plan import Plan
    from moldau.spark.pipeline.run.running import OnProgress, Running


class Pipeline:
    """A pipeline file, read and found to be right as far as that needs no Spark and no broker.

    Without a session given, methods take the one that is there, or make one with `master` and stop
    it at the end.
    """

    def __init__(self, file: PipelineFile, *, master: str | None = None) -> None:
        self.file = file
        self.master = master
        self._store: SchemaCatalog | None = None

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        bootstrap: str | None = None,
        master: str | None = None,
        folder: str | Path | None = None,
        overrides: Mapping[str, Override] | None = None,
    ) -> Pipeline:
        """Read a file; PipelineError has all that is wrong with it, with lines.

        `bootstrap` goes before the file's. Paths of the file are relative to `folder`, or to the
        file's own. `overrides` replaces single settings: `{"sinks.raw.path": "/lake/raw"}`.
        """
        where = None if folder is None else Path(folder).resolve()
        file = read_file(Path(path), bootstrap=bootstrap, folder=where, overrides=overrides)
        return cls(file, master=master)

    @property
    def settings(self) -> PipelineSettings:
        return self.file.settings

    def check(self, spark: SparkSession | None = None) -> list[Problem]:
        """Everything that is wrong: with topics, with SQL, and with tables that are there already.

        Nothing is run, made or written.
        """
        from moldau.spark.pipeline.plan.topics import topic_problems
        from moldau.spark.pipeline.run.starting import start_problems

        problems, missing = topic_problems(self.file)
        if missing is None and self.settings.needs_schemas:
            # The schemas are with the brokers that do not answer.
            return problems
        with self.session(spark) as session:
            try:
                plan = self._plan(session, last=self._last_readings())
            except PipelineError as problem:
                problems += problem.problems
            else:
                problems += start_problems(self.file, plan, self._checkpoint())
        return sorted(problems, key=lambda each: each.line)

    def require_ready(self) -> None:
        """PipelineError for what keeps a run from starting and is known in a moment, before Spark.

        That is brokers that do not answer, a topic that is not there, a checkpoint in use.
        """
        from moldau.spark.pipeline.plan.topics import require_topics

        require_topics(self.file)
        self._checkpoint().require_free()

    def start(self, spark: SparkSession | None = None, *, once: bool = False) -> Running:
        """Start a query for each sink and return at once; the session stays after its end.

        With `once` the queries end when they have read what there is now.
        """
        return self._start(spark or self.new_session(), once)

    def run(
        self,
        *,
        once: bool = False,
        emit_open: bool = False,
        spark: SparkSession | None = None,
        stop: threading.Event | None = None,
        on_progress: OnProgress | None = None,
        on_start: Callable[[], None] | None = None,
    ) -> dict[str, SinkProgress]:
        """Run until `stop` is set, or with `once` until what there is now is read.

        Windows and joins that are open then stay in the checkpoint, for a later run to complete
        and write. With `emit_open` they are written as they stand, and once more when they are
        complete. `on_start` is called when all queries run. The result says how far each sink came.
        """
        from moldau.spark.pipeline.run.starting import emit_last_windows

        with self.session(spark) as session, self._start(session, once) as running:
            if on_start is not None:
                on_start()
            running.wait(stop=stop, on_progress=on_progress)
            if once and emit_open and not (stop is not None and stop.is_set()):
                emit_last_windows(running)
        return {name: replace(each, is_done=True) for name, each in running.progress.items()}

    def supervise(
        self,
        *,
        once: bool = False,
        emit_open: bool = False,
        spark: SparkSession | None = None,
        stop: threading.Event | None = None,
        on_progress: OnProgress | None = None,
        on_status: Callable[[PipelineStatus], None] | None = None,
    ) -> dict[str, SinkProgress]:
        """Run as `moldau pipeline run` does: with restarts, alerts and a status that others see.

        Requests in the status topic set `stop`, too. `on_status` is called at every change.
        """
        from moldau.spark.pipeline.supervision.supervisor import Supervisor

        with Sessions(self.new_session) as sessions:
            supervisor = Supervisor(
                self,
                sessions.get if spark is None else lambda: spark,
                once=once,
                emit_open=emit_open,
                stop=stop,
                on_progress=on_progress,
                on_status=on_status,
            )
            return supervisor.run()

    def replay(
        self,
        from_: datetime | None,
        until: datetime | None,
        *,
        sinks: Sequence[str] = (),
        into: str | None = None,
        append: bool = False,
        spark: SparkSession | None = None,
        on_sink: OnProgress | None = None,
    ) -> dict[str, SinkProgress]:
        """Run over the records with timestamps in a span, as a batch: all windows are complete.

        Checkpoints have no part in it. `sinks` chooses some; with one, `into` is another path or
        topic for it. A sink that rows are added to is refused unless it is empty, or with `append`.
        """
        from moldau.spark.pipeline.plan.topics import require_topics
        from moldau.spark.pipeline.run.replay import replay_sinks

        require_topics(self.file, into if self._is_topic(sinks) else None)
        with self.session(spark) as session:
            return replay_sinks(
                self.file,
                self._plan(session),
                from_,
                until,
                sinks=sinks,
                into=into,
                append=append,
                on_sink=on_sink,
            )

    @contextmanager
    def session(self, given: SparkSession | None = None) -> Iterator[SparkSession]:
        """Yield the session that is given, or there, or else one made for this and then stopped."""
        found = given or active_session()
        used = found or self.new_session()
        try:
            yield used
        finally:
            self._close_schemas()
            if found is None:
                _stop(used)

    def new_session(self, more: Mapping[str, str] | None = None) -> SparkSession:
        """Make the session of this pipeline, or find the one that is there; `more` is for it."""
        from moldau.spark.runtime.session import session

        config = self.config() | dict(more or {})
        return session(self.settings.name, master=self.master, config=config)

    def config(self) -> dict[str, str]:
        """Return the settings of its session."""
        config = {
            # Queries of several sinks share the cores, and none waits for another's long batch.
            "spark.scheduler.mode": "FAIR",
            "spark.sql.session.timeZone": "UTC",
        }
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            # No table of a pipeline lies in Spark's warehouse, but a name that Spark does not know
            # makes it create one, in the working directory unless told where.
            config["spark.sql.warehouse.dir"] = Path(tempfile.gettempdir()).as_uri()
        return config | {name: _text(value) for name, value in self.settings.general.spark.items()}

    def _plan(
        self, spark: SparkSession, run: str = "", last: Mapping[str, LastReading] | None = None
    ) -> Plan:
        from moldau.spark.pipeline.plan.plan import Plan

        # Views and settings of a separate session do not interfere with others.
        own = spark.newSession()
        for name, value in self.config().items():
            if own.conf.isModifiable(name):
                own.conf.set(name, value)
        return Plan(self.file, own, self._schemas, run, last)

    def _schemas(self) -> SchemaCatalog:
        """Return the schema store, connected to for as long as a plan is made."""
        if self._store is None:
            from moldau.spark.formats.avro_values import quiet_store

            registry = self.settings.registry()
            self._store = quiet_store(
                self.settings.bootstrap,
                None if registry is None else registry.resolved(),
                self.file.security(),
            )
        return self._store

    def _close_schemas(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def _start(self, spark: SparkSession, once: bool) -> Running:
        from moldau.spark.pipeline.plan.topics import require_topics
        from moldau.spark.pipeline.run.evolution import Evolution
        from moldau.spark.pipeline.run.starting import start_queries

        require_topics(self.file)
        run = uuid4().hex
        try:
            plan = self._plan(spark, run, self._last_readings())
            running = start_queries(self.file, plan, self._checkpoint(), once)
        finally:
            self._close_schemas()
        restart = running.restart

        def restart_and_close(sink: str, is_new: bool) -> None:
            assert restart is not None
            try:
                restart(sink, is_new)
            finally:
                self._close_schemas()

        running.restart = restart_and_close
        running.evolution = Evolution(self.file, lambda last: self._plan(spark, run, last))
        return running

    def _checkpoint(self) -> Checkpoint:
        location = self.file.resolve(self.settings.general.checkpoint)
        return Checkpoint(location, self.settings.name)

    def _last_readings(self) -> dict[str, LastReading]:
        """Return how the sources were read that a run goes on with."""
        from moldau.spark.pipeline.plan.last_reading import LastReading

        found = self._checkpoint().readings()
        return {source: LastReading.of_json(each) for source, each in found.items()}

    def _is_topic(self, sinks: Sequence[str]) -> bool:
        chosen = [self.settings.sinks.get(name) for name in sinks or self.settings.sinks]
        return len(chosen) == 1 and isinstance(chosen[0], TopicSink)


def _stop(spark: SparkSession) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    # The signal that ends this process may also have ended Java.
    with suppress(Py4JError, ConnectionRefusedError):
        spark.stop()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
