"""Apache Kafka's jars, and Spark's Kafka connector, from Maven Central into a folder of ours.

Maven resolves the dependencies; nothing is unpacked or installed. A finished folder is kept, so
that only the first run needs the network. `MOLDAU_KAFKA_JARS` names a folder of jars to use
instead.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from moldau.bench.errors import Unavailable

# The newest of which Maven Central has the server: of 4.4.0 it has the clients only.
KAFKA_VERSION = "4.3.1"
# Kafka's own distribution logs through this; without it a broker that fails says nothing.
_LOG4J_VERSION = "2.24.3"
_POOL_VERSION = "2.12.0"
_CACHE = Path(__file__).parents[2] / ".cache" / "kafka"
_MAVEN_TIMEOUT_S = 300
# How long a release of the connector is used before Maven is asked for a later one.
_LOOK_AGAIN_AFTER_S = 24 * 3600
_LEAST_JAVA = 17

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>moldau</groupId><artifactId>yardstick</artifactId><version>1</version>
<dependencies>
{dependencies}
</dependencies>
</project>
"""
# Spark's parent POM names a mirror of Maven Central that not every network reaches. An empty
# folder in its place has nothing, so that Maven goes on to Maven Central itself.
_SETTINGS = """<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0"><mirrors><mirror>
<id>moldau-nothing</id><mirrorOf>gcs-maven-central-mirror</mirrorOf>
<url>{nothing}</url>
</mirror></mirrors></settings>
"""
_DEPENDENCY = (
    "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
    "<version>{version}</version><type>{type}</type>{classifier}{exclusions}</dependency>"
)
_EXCLUSIONS = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


@dataclass(frozen=True, slots=True)
class Artifact:
    """One thing on Maven Central."""

    group: str
    artifact: str
    version: str
    classifier: str = ""
    type: str = "jar"

    def __str__(self) -> str:
        classifier = f":{self.classifier}" if self.classifier else ""
        return f"{self.group}:{self.artifact}:{self.version}{classifier}"


@cache
def java() -> str:
    """The `java` to run Kafka with; Unavailable where there is none that is new enough."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None or not Path(found).exists():
        raise Unavailable("Apache Kafka needs a Java of version 17 or newer, and there is none")
    said = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60)
    match = re.search(r'version "(\d+)', said.stderr)
    if match is None or int(match[1]) < _LEAST_JAVA:
        raise Unavailable(f"Apache Kafka needs Java 17 or newer, {found} says: {said.stderr!r}")
    return found


@cache
def java_version() -> str:
    said = subprocess.run([java(), "-version"], capture_output=True, text=True, timeout=60)
    return said.stderr.splitlines()[0].replace('"', "")


@cache
def kafka_jars() -> Path:
    """The folder with Kafka's server, tools and all that they need."""
    given = os.environ.get("MOLDAU_KAFKA_JARS")
    if given:
        if not any(Path(given).glob("kafka_2.13-*.jar")):
            raise Unavailable(f"MOLDAU_KAFKA_JARS is {given}, which holds no kafka_2.13-*.jar")
        return Path(given)
    wanted = [
        Artifact("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        Artifact("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
        Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", _LOG4J_VERSION),
    ]
    return fetch(f"broker-{KAFKA_VERSION}", wanted)


@cache
def registry_archive() -> Path:
    """Return the archive of Apicurio's registry, which has Confluent's API. Version 3 needs a later
    Java."""
    group, version = "io.apicurio", "2.6.13.Final"
    wanted = Artifact(group, "apicurio-registry-app", version, "all", "tar.gz")
    (archive,) = fetch(f"registry-{version}", [wanted], transitive=False).iterdir()
    return archive


def kafka_version() -> str:
    """The version of the Kafka that runs."""
    (jar,) = kafka_jars().glob("kafka_2.13-*.jar")
    return jar.stem.removeprefix("kafka_2.13-")


@cache
def connector_jars(spark_version: str) -> tuple[str, list[Path]]:
    """Spark's Kafka connector with what it needs beyond Spark itself, and what it is in words.

    Of the very release of Spark, or of the nearest one before it that Maven Central has; the
    connector's two jars are looked for apart, since not every release has both there.
    """
    connector, first = _nearest("spark-sql-kafka-0-10_2.13", spark_version)
    provider, second = _nearest("spark-token-provider-kafka-0-10_2.13", spark_version)
    others = [
        Artifact("org.apache.kafka", "kafka-clients", KAFKA_VERSION),
        Artifact("org.apache.commons", "commons-pool2", _POOL_VERSION),
    ]
    folder = fetch(f"connector-needs-{KAFKA_VERSION}", others, transitive=False)
    name = f"spark-sql-kafka-0-10 {connector}"
    if provider != connector:
        name += f" with the token provider of {provider}"
    return name, [*first.iterdir(), *second.iterdir(), *folder.iterdir()]


def _nearest(artifact: str, spark_version: str) -> tuple[str, Path]:
    reasons = []
    versions = _candidates(spark_version)
    for version in versions:
        folder = _CACHE / f"{artifact}-{version}"
        if folder.is_dir() and time.time() - folder.stat().st_mtime < _LOOK_AGAIN_AFTER_S:
            return version, folder
    for version in versions:
        wanted = Artifact("org.apache.spark", artifact, version)
        try:
            folder = fetch(f"{artifact}-{version}", [wanted], transitive=False)
        except Unavailable as reason:
            reasons.append(str(reason))
        else:
            os.utime(folder)
            return version, folder
    raise Unavailable(reasons[0])


def _candidates(spark_version: str) -> list[str]:
    major, minor, _ = (int(part) for part in re.findall(r"\d+", spark_version)[:3])
    return [spark_version, *(f"{major}.{older}.0" for older in range(minor - 1, -1, -1))]


def fetch(name: str, wanted: Sequence[Artifact], transitive: bool = True) -> Path:
    """The folder `name` of the cache, filled by Maven on first use; Unavailable if it cannot."""
    folder = _CACHE / name
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("jars are fetched with Maven, and there is no `mvn` here")
    _CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE, prefix=f"{name}.") as temporary:
        pom = Path(temporary) / "pom.xml"
        lines = [
            _DEPENDENCY.format(
                group=each.group,
                artifact=each.artifact,
                version=each.version,
                type=each.type,
                classifier=f"<classifier>{each.classifier}</classifier>" if each.classifier else "",
                exclusions="" if transitive else _EXCLUSIONS,
            )
            for each in wanted
        ]
        pom.write_text(_POM.format(dependencies="\n".join(lines)))
        settings = Path(temporary) / "settings.xml"
        nothing = Path(temporary) / "nothing"
        nothing.mkdir()
        settings.write_text(_SETTINGS.format(nothing=nothing.as_uri()))
        words = [
            maven,
            "-B",
            "-q",
            "-U",
            "-Dstyle.color=never",
            "-gs",
            str(settings),
            "-f",
            str(pom),
        ]
        words += ["dependency:copy-dependencies"]
        words += ["-DincludeScope=runtime", f"-DoutputDirectory={temporary}/jars"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=_MAVEN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"Maven did not end within {_MAVEN_TIMEOUT_S} s") from None
        if done.returncode != 0:
            said = [line for line in done.stdout.splitlines() if "ERROR" in line]
            why = said[0] if said else done.stderr.strip()
            raise Unavailable(f"Maven could not fetch {', '.join(map(str, wanted))}: {why}")
        # Whole or not at all: a folder that exists is complete, whoever fetched it meanwhile.
        try:
            (Path(temporary) / "jars").rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    return folder
