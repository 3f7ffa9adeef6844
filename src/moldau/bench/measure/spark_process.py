"""A Spark process that takes jobs, for measurements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import msgspec

from moldau.bench.child import Child, Children
from moldau.bench.errors import Unavailable
from moldau.bench.load.spark_jobs import Followed, Job
from moldau.bench.tasks import RowFlow, SparkServer

_PACKAGES = ("deltalake", "numba", "pyarrow", "pyspark")
START_WITHIN_S = 90
JOB_WITHIN_S = 600


def require_spark() -> None:
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise Unavailable(f"{' and '.join(missing)} not installed: pip install 'moldau[spark]'")


class SparkProcess:
    """A Spark process that takes jobs."""

    def __init__(self, child: Child) -> None:
        self._child = child
        child.line(START_WITHIN_S)

    def tell(self, job: Job) -> None:
        self._child.say(msgspec.json.encode(job).decode())

    def wait_ready(self) -> None:
        self._child.line(JOB_WITHIN_S)

    def flow(self, job: Job) -> RowFlow:
        self.tell(job)
        return self._child.answer(RowFlow, JOB_WITHIN_S)

    def followed(self) -> Followed:
        return self._child.answer(Followed, JOB_WITHIN_S)

    def end(self) -> None:
        """Its last line comes when Spark's own processes are gone."""
        self._child.close_input()
        self._child.line(START_WITHIN_S)


@contextmanager
def spark_process(
    children: Children, folder: Path, slots: int, jars: str = ""
) -> Iterator[SparkProcess]:
    child = children.begin(SparkServer(slots, str(folder), jars))
    try:
        spark = SparkProcess(child)
        yield spark
        spark.end()
    finally:
        child.stop()
