"""The checkpoint folder of a pipeline: who may use it, and what is in it.

lock             held by the running pipeline; says who that is
pipeline.json    the pipeline's name, the sources of each sink, and how each source was last read
sinks/NAME/      Spark's checkpoint of the query of one sink
starts/NAME.json where that query began, if a table said so
last/NAME/       a copy of it, from which a bounded run emitted its last windows
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from moldau.spark.pipeline.errors import CheckpointInUse, PipelineError, Problem

if TYPE_CHECKING:
    from moldau.spark.lake import Offsets

LOCK = "lock"
IDENTITY = "pipeline.json"


class Checkpoint:
    """A local folder, or a URL that only Spark can read: then there is no lock."""

    def __init__(self, location: str, pipeline: str) -> None:
        self.location = location.removeprefix("file://")
        self._pipeline = pipeline
        self._lock: IO[str] | None = None

    @property
    def is_local(self) -> bool:
        return "://" not in self.location

    def of_sink(self, sink: str) -> str:
        return f"{self.location}/sinks/{sink}"

    def acquire(
        self, sources: Mapping[str, Sequence[str]], read_as: Mapping[str, Any] | None = None
    ) -> None:
        """Take the lock and see that the folder is this pipeline's; CheckpointInUse if it is held.

        Every sink with the sources that it reads: Spark can only go on with the same. `read_as` is
        for `remember`.
        """
        if not self.is_local:
            return
        self._take()
        try:
            self._say_who()
            sinks = self._compare(sources)
            self._write(sinks, self._known().get("read", {}) | dict(read_as or {}))
        except BaseException:
            self.release()
            raise

    def remember(self, read_as: Mapping[str, Any]) -> None:
        """Keep how sources are read from now on, as JSON. The lock is held."""
        if self.is_local:
            known = self._known()
            self._write(known["sinks"], known.get("read", {}) | dict(read_as))

    def readings(self) -> dict[str, Any]:
        """Return how sources were last read from which a sink has planned a batch."""
        if not self.is_local:
            return {}
        known = self._known()
        begun = {
            source
            for sink, sources in known.get("sinks", {}).items()
            if self.last_batch(sink) is not None
            for source in sources
        }
        return {name: each for name, each in known.get("read", {}).items() if name in begun}

    def require_same(self, sources: Mapping[str, Sequence[str]]) -> None:
        """PipelineError if the folder is another pipeline's, or a sink of it read other sources."""
        if self.is_local:
            self._compare(sources)

    def require_free(self) -> None:
        """CheckpointInUse if the lock is held now; it takes nothing."""
        if Path(self.location, LOCK).exists():
            self._take()
            self.release()

    def _take(self) -> None:
        folder = Path(self.location)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = open(folder / LOCK, "a+", encoding="utf-8")  # noqa: SIM115
        except OSError as problem:
            raise _error(f"checkpoint {self.location}: {problem.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _holder(lock)
            lock.close()
            raise CheckpointInUse(
                Problem(
                    f"checkpoint {self.location} is in use by {holder}; two pipelines "
                    "cannot share a checkpoint: stop the other one, or set another "
                    "'checkpoint'"
                )
            ) from None
        self._lock = lock

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def has_progress(self, sink: str) -> bool:
        """Return whether the sink's query has planned a batch; True where only Spark can tell."""
        if not self.is_local:
            return True
        return self.last_batch(sink) is not None

    def last_batch(self, sink: str) -> int | None:
        return _last(Path(self.of_sink(sink), "offsets"))

    def last_committed(self, sink: str) -> int | None:
        return _last(Path(self.of_sink(sink), "commits"))

    def drop_drafts(self, sink: str) -> None:
        """Remove what a killed driver had begun to write of a query's first plan.

        Spark starts no first batch beside it, so that the pipeline could never run again.
        """
        for draft in Path(self.of_sink(sink), "offsets").glob(".*"):
            draft.unlink(missing_ok=True)

    def start_of(self, sink: str) -> Offsets | None:
        """Return where the query began, if it was told so by a table."""
        from moldau.spark.lake import Offsets

        try:
            text = self._start_file(sink).read_text("utf-8")
        except OSError:
            return None
        return Offsets.of_json(json.loads(text))

    def set_start(self, sink: str, start: Offsets | None) -> None:
        path = self._start_file(sink)
        if start is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_whole(path, json.dumps(start.to_json()))

    def _start_file(self, sink: str) -> Path:
        return Path(self.location, "starts", f"{sink}.json")

    def _say_who(self) -> None:
        assert self._lock is not None
        self._lock.seek(0)
        self._lock.truncate()
        since = datetime.now(UTC).isoformat(timespec="seconds")
        who = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "pipeline": self._pipeline,
            "since": since,
        }
        json.dump(who, self._lock)
        self._lock.flush()

    def _compare(self, sources: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
        """Return the sources of all sinks, also of those that the pipeline had before."""
        known = self._known()
        if known and known["name"] != self._pipeline:
            raise _error(
                f"checkpoint {self.location} belongs to the pipeline "
                f"{known['name']!r}, but this is {self._pipeline!r}; set another "
                "'checkpoint', or use that 'name'"
            )
        before = known.get("sinks", {})
        for sink, names in sources.items():
            is_begun = self.last_batch(sink) is not None
            if is_begun and sorted(before.get(sink, names)) != sorted(names):
                raise _error(
                    f"sink {sink} now reads {', '.join(sorted(names))}, but read "
                    f"{', '.join(sorted(before[sink]))} before; its checkpoint does not match. To "
                    f"start again from the beginning, remove {self.of_sink(sink)}"
                )
        return {**before, **{sink: sorted(names) for sink, names in sources.items()}}

    def _known(self) -> dict[str, Any]:
        known: dict[str, Any] = {}
        with contextlib.suppress(FileNotFoundError):
            known = json.loads(Path(self.location, IDENTITY).read_text("utf-8"))
        return known

    def _write(self, sinks: Mapping[str, Sequence[str]], read: Mapping[str, Any]) -> None:
        known = {"name": self._pipeline, "sinks": sinks, "read": read}
        _write_whole(Path(self.location, IDENTITY), json.dumps(known))


def _holder(lock: IO[str]) -> str:
    try:
        lock.seek(0)
        who = json.load(lock)
        return f"process {who['pid']} on {who['host']} since {who['since']} ({who['pipeline']})"
    except (ValueError, KeyError, TypeError):
        return "another process"


def _last(folder: Path) -> int | None:
    try:
        numbers = [int(each.name) for each in folder.iterdir() if each.name.isdecimal()]
    except FileNotFoundError:
        return None
    return max(numbers, default=None)


def _write_whole(path: Path, text: str) -> None:
    """A crash leaves the old file or the new one."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text, "utf-8")
    draft.replace(path)


def _error(message: str) -> PipelineError:
    return PipelineError(Problem(message))
