"""Steps in Python: what they make of rows, and what is said when they cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from moldau.spark.pipeline import PipelineError
from moldau.testing import Broker
from tests.spark.pipeline.files import RAW, SOURCE, event, load, send, table
from tests.spark.topics import fresh_topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

MODULE = """\
from pyspark.sql import functions as F
from words import loud


@F.udf("string")
def tidy(name):
    return loud(name)


def known(events):
    return events.where("number > 0").withColumn("name", tidy("name"))


def once(events, bonus):
    first = events.dropDuplicatesWithinWatermark(["name"])
    return first.join(bonus, "name", "left")


def wrong(events):
    return events.select("numbr")


def raises(events):
    return 1 / 0


def nothing(events):
    pass
"""
STATE = """\
from collections.abc import Iterator

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from words import loud


class Totals(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "total INT")

    def handleInputRows(self, key, rows, timerValues) -> Iterator[Row]:
        before = self.total.get()[0] if self.total.exists() else 0
        total = before + sum(row["number"] for row in rows)
        self.total.update((total,))
        yield Row(name=loud(key[0]), total=total)

    def close(self) -> None:
        pass


def totals(events):
    of_name = events.groupBy("name")
    return of_name.transformWithState(Totals(), "name STRING, total INT", "Append", "None")
"""
# Spark keeps state of this kind in no other store.
STORE = """\
[spark]
"spark.sql.streaming.stateStore.providerClass" = \
"org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""
WORDS = "def loud(text):\n    return text.upper()\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(MODULE)
    (tmp_path / "words.py").write_text(WORDS)
    return tmp_path


@pytest.fixture(scope="module")
def topic(moldau_session_broker: Broker) -> str:
    return fresh_topic(moldau_session_broker)


@pytest.mark.slow
def test_steps_and_tables_build_on_each_other(
    spark: SparkSession, moldau_session_broker: Broker, folder: Path
) -> None:
    topic = fresh_topic(moldau_session_broker)
    events = [event(1, "a", 1), event(2, "a", 2), event(3, "b", 0), event(4, "c", 3)]
    send(moldau_session_broker, topic, events)
    pipeline = load(
        folder,
        moldau_session_broker,
        topic,
        SOURCE,
        '[steps.known]\nfrom = "events"\npython = "own:known"\n',
        "[tables.bonus]\nsql = \"SELECT * FROM VALUES ('A', 10) AS t(name, bonus)\"\n",
        '[steps.once]\nfrom = ["known", "bonus"]\npython = "own:once"\n',
        '[tables.sums]\nsql = "SELECT name, number + coalesce(bonus, 0) AS sum FROM once"\n',
        '[sinks.sums]\nfrom = "sums"\ntype = "delta"\npath = "lake/sums"\n',
        # A second sink plans the same steps again.
        '[sinks.known]\nfrom = "known"\ntype = "delta"\npath = "lake/known"\nkeys = ["name"]\n',
    )
    assert pipeline.check(spark) == []
    pipeline.run(once=True, spark=spark)
    sums = sorted((row["name"], row["sum"]) for row in table(folder / "lake/sums"))
    assert sums == [("A", 11), ("C", 3)]
    known = sorted((row["name"], row["number"]) for row in table(folder / "lake/known"))
    assert known == [("A", 2), ("C", 3)]


@pytest.mark.slow
def test_a_step_keeps_state_of_its_own_between_runs(
    spark: SparkSession, moldau_session_broker: Broker, folder: Path
) -> None:
    topic = fresh_topic(moldau_session_broker)
    (folder / "state.py").write_text(STATE)
    pipeline = load(
        folder,
        moldau_session_broker,
        topic,
        STORE,
        SOURCE,
        '[steps.totals]\nfrom = "events"\npython = "state:totals"\n',
        '[sinks.totals]\nfrom = "totals"\ntype = "delta"\npath = "lake/totals"\n',
    )
    found = []
    for events in ([event(1, "a", 1), event(2, "b", 2), event(3, "a", 3)], [event(4, "a", 5)]):
        send(moldau_session_broker, topic, events)
        pipeline.run(once=True, spark=spark)
        found.append(sorted((row["name"], row["total"]) for row in table(folder / "lake/totals")))
    assert found == [[("A", 4), ("B", 2)], [("A", 4), ("A", 9), ("B", 2)]]


# What is added begins on line 6.
@pytest.mark.parametrize(
    ("python", "read", "line", "said"),
    [
        ("own:known", "event", 7, "there is no source, table or step 'event'; did you mean"),
        ("own:known", "t", 7, "t reads itself"),
        (
            "own:known",
            "late",
            7,
            "table late is defined below this one; move it above",
        ),
        ("own", "events", 8, "'own' is not of the form 'module:function'"),
        ("own:knwn", "events", 8, "own has no function 'knwn'; did you mean 'known'?"),
        ("none_such:f", "events", 8, "none_such cannot be loaded: ModuleNotFoundError"),
        ("broken:f", "events", 8, "broken cannot be loaded (broken.py, line 2): ZeroDivisionError"),
        ("own:wrong", "events", 8, "own:wrong failed (own.py, line 20):"),
        ("own:raises", "events", 8, "own:raises failed (own.py, line 24): ZeroDivisionError"),
        ("own:nothing", "events", 8, "own:nothing returned NoneType, not a DataFrame"),
    ],
)
def test_what_is_wrong_with_a_step_is_found_on_its_line(
    spark: SparkSession,
    moldau_session_broker: Broker,
    folder: Path,
    topic: str,
    python: str,
    read: str,
    line: int,
    said: str,
) -> None:
    (folder / "broken.py").write_text("ready = True\n1 / 0\n")
    step = f'[steps.t]\nfrom = "{read}"\npython = "{python}"\n'
    # What reads it is not news on top.
    late = '[tables.late]\nsql = "SELECT * FROM t"\n'
    pipeline = load(folder, moldau_session_broker, topic, SOURCE, step, late, RAW)
    (problem,) = pipeline.check(spark)
    assert (problem.line, problem.part) == (line, "step t")
    assert problem.message.startswith(said)


def test_a_step_has_a_name_of_its_own(moldau_session_broker: Broker, tmp_path: Path) -> None:
    step = '[steps.events]\nfrom = "events"\npython = "own:known"\n'
    with pytest.raises(PipelineError, match="events is already the name of a source"):
        load(tmp_path, moldau_session_broker, "steps", SOURCE, step, RAW)
