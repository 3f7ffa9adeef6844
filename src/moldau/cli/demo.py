"""`moldau demo`: the whole way, live, with the same commands that a person would type."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moldau.cli.output import Failure, show

STOP_WITHIN_S = 20.0

ORDERS = """\
anna,2 coffees
tom,1 cake
anna,1 water
carla,3 teas
tom,1 coffee
"""


def demo() -> None:
    """Start a broker, create a topic, produce, consume, and show what is where.

    Everything happens in a temporary folder on a free port and is gone afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="moldau-demo-") as folder, _broker(folder) as address:
        story = Story(address)
        story.tell("A topic with three partitions.")
        story.run("topics create orders --partitions 3")
        story.tell(
            "Five messages. What stands before the comma is the key, which picks the partition,",
            "so that the orders of one customer stay in order.",
        )
        story.run("produce orders --key-separator ,", typed=ORDERS)
        story.tell("Read them back, with where each one lies.")
        story.run(
            "consume orders --from-beginning --max 5"
            " --format '{partition}/{offset}  {key} ordered {value}'"
        )
        story.tell("A message stays after it was read. Here are the last ones again, as JSON.")
        story.run("consume orders --offset -1 --max 2 --timeout 2 --json")
        story.tell("The offsets of every partition, and a setting changed while it runs.")
        story.run("topics alter orders --config retention.ms=3600000")
        story.run("topics describe orders")
        story.tell("On disk it is Kafka's own format.")
        for log in sorted(Path(folder).glob("orders-*/*.log")):
            show(f"  {log.relative_to(folder)}  {log.stat().st_size} bytes", "cyan")
        story.tell("Any Kafka client could have done the same. Now the broker stops.")
    show("\nDone. Start your own with `moldau broker`.", "bold green")


class Story:
    """Runs `moldau` commands against one broker and shows them as if they were typed."""

    def __init__(self, address: str) -> None:
        self._environment = os.environ | {"MOLDAU_BOOTSTRAP": address}

    def tell(self, *lines: str) -> None:
        show("\n" + "\n".join(f"# {line}" for line in lines), "bold")

    def run(self, command: str, typed: str = "") -> None:
        show(f"$ moldau {command}", "green")
        if typed:
            show(typed.rstrip("\n"), "dim")
        ended = subprocess.run(
            [sys.executable, "-m", "moldau", *shlex.split(command)],
            env=self._environment,
            input=typed.encode(),
            check=False,
        )
        if ended.returncode != 0:
            raise Failure(f"`moldau {command}` ended with status {ended.returncode}")


@contextmanager
def _broker(folder: str) -> Iterator[str]:
    """A broker process on a free port; its address. Stopped with SIGTERM, and that must work."""
    command = ["broker", "--data-dir", folder, "--listen", "127.0.0.1:0"]
    show("# A real broker, in a process of its own.", "bold")
    show(f"$ moldau {shlex.join(command)}", "green")
    log = Path(folder) / "broker-output.txt"
    with open(log, "wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "moldau", *command], stdout=subprocess.PIPE, stderr=stderr
        )
    assert process.stdout is not None
    try:
        ready = process.stdout.readline().decode().strip()
        if " ready on " not in ready:
            raise Failure("the broker did not start", f"its log ends with: {_tail(log)}")
        show(ready, "cyan")
        yield ready.rpartition(" ")[2]
    finally:
        process.terminate()
        try:
            status = process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        process.stdout.close()
    if status != 0:
        raise Failure(f"the broker stopped with status {status}", f"its log: {_tail(log)}")


def _tail(log: Path) -> str:
    return log.read_text(errors="replace").strip()[-500:]
