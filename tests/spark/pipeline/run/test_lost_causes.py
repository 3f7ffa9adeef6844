"""Lost causes: failures of a query that are about a process of Spark's, not about the query."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from moldau.spark.pipeline.run.lost_processes import lost_process


class Thrown:
    """A Java exception as far as it is looked at."""

    def __init__(self, name: str, cause: Thrown | None = None, stack: tuple[str, ...] = ()) -> None:
        self.name, self._cause, self._stack = name, cause, stack

    def getClass(self) -> Any:
        return SimpleNamespace(getName=lambda: self.name)

    def getCause(self) -> Thrown | None:
        return self._cause

    def getStackTrace(self) -> tuple[str, ...]:
        return self._stack


def query(text: str, thrown: Thrown) -> Any:
    found = SimpleNamespace(isDefined=lambda: True, get=lambda: thrown)
    java = SimpleNamespace(exception=lambda: found)
    return SimpleNamespace(exception=lambda: RuntimeError(text), _jsq=java)


RUNNER = ("java.base/java.io.DataInputStream.readInt", "x.PythonStreamingSourceRunner.latestOffset")
QUERY = "org.apache.spark.sql.streaming.StreamingQueryException"
EOF = Thrown(QUERY, Thrown("java.io.EOFException", None, RUNNER))
OTHER = Thrown(QUERY, Thrown("java.io.IOException", None, ("org.apache.hadoop.fs.Path.write",)))


@pytest.mark.parametrize(
    ("text", "thrown", "said"),
    [
        ("(no cause message)", EOF, "asks the source for its offsets has ended: it was killed"),
        ("Python worker failed to connect back.", OTHER, "did not start within ten seconds"),
        ("Python worker exited unexpectedly (crashed)", OTHER, "runs tasks has ended"),
        ("No space left on device", OTHER, None),
        ("moldau.spark.errors.DataLoss: gone", Thrown(QUERY, Thrown("x.PythonException")), None),
    ],
)
def test_a_lost_process_is_told_from_other_failures(
    text: str, thrown: Thrown, said: str | None
) -> None:
    found = lost_process(query(text, thrown))
    assert (found is None) if said is None else (found is not None and said in found)


def test_what_the_writing_raised_goes_before_what_spark_says() -> None:
    assert lost_process(query("(no cause message)", EOF), ValueError("disk full")) is None
