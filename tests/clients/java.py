"""Apache Kafka's own producer, run from Maven Central's jars; whoever cannot have it skips."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from bench.kafka.jars import KAFKA_VERSION, Artifact, fetch, java
from moldau.bench.errors import Unavailable

_PROGRAM = Path(__file__).parent / "Send.java"
_WITHIN_S = 60.0


class JavaProducer:
    """Runs Send.java, which the `java` command compiles as it starts."""

    def __init__(self) -> None:
        try:
            self._java = java()
            wanted = [Artifact("org.apache.kafka", "kafka-clients", KAFKA_VERSION)]
            self._jars = fetch(f"clients-{KAFKA_VERSION}", wanted)
        except Unavailable as reason:
            pytest.skip(f"cannot run Java's producer: {reason}")

    def start(self, bootstrap: str, topic: str, **settings: str | int) -> Sending:
        words = [self._java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        words += ["-cp", f"{self._jars}/*", str(_PROGRAM), topic, f"bootstrap.servers={bootstrap}"]
        words += [f"{key.replace('_', '.')}={value}" for key, value in settings.items()]
        return Sending(words)


class Sending:
    """One run of the program, from its start until all is answered."""

    def __init__(self, words: list[str]) -> None:
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def send(self, messages: Iterable[tuple[str | None, str]]) -> list[str]:
        """What became of each (key, value): its offset, or an error's name and message."""
        lines = "".join(f"{key or ''}\t{value}\n" for key, value in messages)
        try:
            said, complaints = self._process.communicate(lines, _WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        assert self._process.returncode == 0, complaints
        return said.splitlines()
