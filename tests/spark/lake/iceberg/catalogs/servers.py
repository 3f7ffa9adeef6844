"""Servers of catalogs that are not ours: Java processes on loopback, their tables in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from bench.kafka.jars import Artifact, fetch, java
from moldau.bench.errors import Unavailable
from moldau.testing.waiting import until
from tests.processes import started

_ICEBERG, _JETTY, _SQLITE = "1.11.0", "12.0.27", "3.50.3.0"
_REST = [
    Artifact("org.apache.iceberg", "iceberg-core", _ICEBERG),
    # Where Iceberg keeps its REST server.
    Artifact("org.apache.iceberg", "iceberg-core", _ICEBERG, classifier="tests"),
    Artifact("org.eclipse.jetty.ee10", "jetty-ee10-servlet", _JETTY),
    Artifact("org.xerial", "sqlite-jdbc", _SQLITE),
]
_SPARK = Path(pyspark.__path__[0], "jars")
# DataNucleus looks into classes of Java itself.
_OPENS = [f"--add-opens=java.base/java.{each}=ALL-UNNAMED" for each in ("lang", "net", "util")]
_START_S = 120.0


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    """Apache Iceberg's REST catalog, from Maven Central; yields its address."""
    try:
        java()
        jars = fetch(f"iceberg-rest-{_ICEBERG}", _REST)
    except Unavailable as reason:
        pytest.skip(f"cannot run a REST catalog: {reason}")
    classes = [f"{jars}/*", *map(str, _SPARK.glob("hadoop-client-*.jar"))]
    with _server("RestCatalog", classes, folder) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def hive_metastore(folder: Path) -> Iterator[str]:
    """Hive's metastore, of the release that Spark brings; yields its address."""
    try:
        java()
    except Unavailable as reason:
        pytest.skip(f"cannot run a Hive metastore: {reason}")
    with _server("HiveMetastore", [f"{_SPARK}/*"], folder, _OPENS) as port:
        yield f"thrift://127.0.0.1:{port}"


@contextmanager
def _server(
    name: str, classes: Sequence[str], folder: Path, options: Sequence[str] = ()
) -> Iterator[int]:
    """Run the program of that name, which the `java` command compiles as it starts."""
    words = [java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", *options]
    words += [f"-Dderby.stream.error.file={folder / 'derby.log'}", "-cp", ":".join(classes)]
    words += [str(Path(__file__).with_name(f"{name}.java")), str(folder)]
    said, complaints = folder / f"{name}.out", folder / f"{name}.err"
    with (
        said.open("w") as out,
        complaints.open("w") as err,
        started(words, cwd=folder, stdout=out, stderr=err) as process,
    ):

        def port() -> int | None:
            assert process.poll() is None, complaints.read_text()
            line = said.read_text()
            return int(line) if line.endswith("\n") else None

        yield until(port, f"a port of {name}", _START_S, poll_s=0.1)
