"""An archive of the classes that Spark loads, with which its Java starts at half the cost.

    python -m tests.spark.class_archive

Most of what a starting Spark computes is finding, checking and linking some ten thousand classes,
and a run of the slow tests starts more than a hundred of them. Java can write what it has loaded
into a file when it ends, and map that into memory from then on (JEP 350). It is made once, by a
small pipeline, beside the packages that it belongs to. A Java that cannot do that makes none, and
what another Java has made it passes over: tests are slower then, and otherwise the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
# Whoever starts Spark in tests does little with it: compiling that well costs more than it saves.
_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# Tests look at what is printed: an archive that does not fit is nothing to tell.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_WITHIN_S = 400


def quick_java(archive: Path = ARCHIVE) -> str:
    """Return the options for Spark's Java in tests."""
    return f"{_QUICK} -XX:SharedArchiveFile={archive} {_QUIET}" if archive.exists() else _QUICK


def make(archive: Path) -> str:
    """Write the archive; return what is in the way of it, if anything is."""
    draft = archive.with_name(f"{archive.name}.{os.getpid()}")
    options = f"{_QUICK} -XX:ArchiveClassesAtExit={draft} {_QUIET}"
    try:
        # Until Java has let go of its output: it writes when Python has ended.
        ended = subprocess.run(
            [sys.executable, "-m", "tests.spark.class_archive", "--load"],
            env=os.environ | {"SPARK_SUBMIT_OPTS": options},
            capture_output=True,
            text=True,
            timeout=_WITHIN_S,
            check=False,
        )
        if ended.returncode:
            return ended.stderr[-2000:]
        if not draft.exists():
            return "this Java keeps none"
        draft.replace(archive)
    except subprocess.TimeoutExpired:
        return f"it was not done within {_WITHIN_S} s"
    finally:
        draft.unlink(missing_ok=True)
    return ""


def load() -> None:
    """Run what makes Java load most of what tests have it load."""
    from moldau.spark.pipeline import Pipeline
    from moldau.testing import Broker
    from tests.spark.pipeline.files import COUNTS, RAW, SOURCE, event, send

    sent = '[sinks.sent]\nfrom = "counts"\ntype = "topic"\ntopic = "counts"\n'
    settings = '[spark]\n"spark.driver.memory" = "512m"\n"spark.sql.shuffle.partitions" = 2\n'
    with Broker() as broker, tempfile.TemporaryDirectory(prefix="moldau-classes-") as folder:
        broker.create_topic("events", 2)
        send(broker, "events", [event(each % 120, number=each) for each in range(200)])
        file = Path(folder) / "load.toml"
        parts = "".join((SOURCE, COUNTS, RAW, sent, settings))
        file.write_text(parts.format(topic="events"), "utf-8")
        with Pipeline.load(file, bootstrap=broker.bootstrap).start(once=True) as running:
            running.wait()


if __name__ == "__main__":
    if sys.argv[1:]:
        load()
    elif problem := make(ARCHIVE):
        sys.exit(f"no archive of Spark's classes, so that tests start it slower: {problem}")
