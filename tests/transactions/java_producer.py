"""Java's own producer, which speaks the newer dialect, in a process of its own."""

from __future__ import annotations

import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.kafka.jars import KAFKA_VERSION, Artifact, fetch, java
from tests.scenarios.ledger import TopicPartition
from tests.transactions.raw_producer import Refused
from tests.transactions.worker import PATIENCE_S, TIMEOUT_MS
from tests.transactions.writers import Tv2Writer

_PROGRAM = Path(__file__).parent / "Produce.java"
_GRACE_S = 30.0


def command() -> list[str]:
    """What runs the program; Unavailable where there is no Java or no Maven."""
    words = [java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx96m"]
    wanted = [Artifact("org.apache.kafka", "kafka-clients", KAFKA_VERSION)]
    return [*words, "-cp", f"{fetch(f'clients-{KAFKA_VERSION}', wanted)}/*", str(_PROGRAM)]


class JavaProducer:
    """A process that has one producer at a time; `begin` makes another. For one thread."""

    def __init__(self, bootstrap: str, id: str) -> None:
        limits = [str(TIMEOUT_MS), str(int(PATIENCE_S * 1000))]
        self._process = subprocess.Popen(
            [*command(), bootstrap, id, *limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def end_process(self) -> None:
        self._process.kill()
        self._process.communicate()

    def begin(self) -> None:
        self._ask("begin")

    def write(
        self, place: TopicPartition, values: Sequence[tuple[bytes | None, bytes]]
    ) -> list[int]:
        words = [text for key, value in values for text in ((key or b"").decode(), value.decode())]
        offsets = [int(word) for word in self._ask("write", *map(str, place), *words).split()]
        return offsets if min(offsets) >= 0 else []

    def stage(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        words = [str(each) for place, at in positions.items() for each in (*place, at)]
        self._ask("stage", group, *words)

    def end(self, *, commits: bool) -> None:
        self._ask("commit" if commits else "abort")

    def close(self) -> None:
        """Forget the producer, as if it had died."""
        self._ask("forget")

    def _ask(self, *words: str) -> str:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\t".join(words) + "\n")
        stdin.flush()
        within_s = PATIENCE_S + _GRACE_S
        if not select.select([stdout], [], [], within_s)[0]:
            raise AssertionError(f"Java's producer did not {words[0]} within {within_s:g} s")
        outcome, _, rest = stdout.readline().strip().partition(" ")
        if outcome == "ok":
            return rest
        if rest == "TimeoutException":
            raise TimeoutError(words[0])
        raise Refused(words[0], rest or "end of the process", is_fenced=outcome == "fenced")


class JavaWriter(Tv2Writer):
    """A writer with Java's producer."""

    _can_haunt = False
    _java: JavaProducer | None = None

    def _new(self) -> JavaProducer:
        if self._java is None:
            self._java = JavaProducer(self._bootstrap, self.name)
        return self._java

    def _close(self) -> None:
        if self._java is not None:
            self._java.end_process()
