"""The parity of Spark's own connector and ours: each feature is tried on both, and written down.

    python -m tests.spark.parity [FILE [FIRST STEP]]

writes the outcomes as JSON, without FILE for the table in docs/spark.md (then run `make docs`).
With FIRST and STEP, only those of each STEPth feature of a part, from number FIRST on.
Without Spark's own connector, the exit status is 3.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from docs.generate import PARITY
from moldau.spark import session
from moldau.testing import Broker
from tests.spark.own_connector import own_connector
from tests.spark.parity.feature import Part
from tests.spark.parity.reading import reads
from tests.spark.parity.scene import OURS, OWN, Scene
from tests.spark.parity.streaming import streams
from tests.spark.parity.writing import writes

PARTS = (reads, streams, writes)
# Warnings as well, which a session of ours does not print.
LOGGING = """
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
"""


def main(target: Path = PARITY, first: int = 0, step: int = 1) -> int:
    connector, jars = own_connector()
    with tempfile.TemporaryDirectory(prefix="moldau-parity-") as temporary:
        folder = Path(temporary)
        with stderr_in(folder / "log"):
            found = outcomes(jars, folder, folder / "log", slice(first, None, step))
    versions = {"spark": version("pyspark"), "connector": connector}
    target.write_text(json.dumps({**versions, "parts": found}, indent=2) + "\n")
    return 0


def outcomes(
    jars: Sequence[Path], folder: Path, log: Path, chosen: slice
) -> list[dict[str, object]]:
    logging = folder / "log4j2.properties"
    logging.write_text(LOGGING)
    config = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={logging.as_uri()} -XX:TieredStopAtLevel=1"
        ),
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # Reports of queries that wait, and batches of real-time mode that end soon.
        "spark.sql.streaming.noDataProgressEventInterval": "100",
        "spark.sql.streaming.realTimeMode.minBatchDuration": "1000",
    }
    unforeseen: list[Exception] = []
    with Broker(auto_create_topics_enable=False) as broker:
        spark = session("parity", master="local[4]", config=config)
        try:
            scenes = [Scene(spark, broker, name, folder, log) for name in (OWN, OURS)]
            parts: list[dict[str, object]] = [
                {"title": part.title, "features": list(rows(part, chosen, scenes, unforeseen))}
                for part in PARTS
            ]
        finally:
            spark.stop()
    if unforeseen:
        raise ExceptionGroup("unforeseen outcomes", unforeseen)
    return parts


def rows(
    part: Part, chosen: slice, scenes: Sequence[Scene], unforeseen: list[Exception]
) -> Iterator[dict[str, object]]:
    """Yield what is to be said of each feature; what no trial foresees is kept for the end."""
    for feature in part.features[chosen]:
        try:
            own, ours = (feature.outcome(scene) for scene in scenes)
        except Exception as problem:
            problem.add_note(f"in the trial of: {feature.name}")
            unforeseen.append(problem)
            continue
        if feature.denied and own == ours:
            why = f"Spark no longer denies this to connectors in Python: {feature.name}"
            unforeseen.append(ValueError(why))
        row = {"feature": feature.name, OWN: own, OURS: ours}
        yield {**row, "denied": feature.denied, "note": feature.note}


@contextmanager
def stderr_in(log: Path) -> Iterator[None]:
    """Send what this process, Spark and its workers write to stderr into a file."""
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else PARITY, *map(int, sys.argv[2:])))
