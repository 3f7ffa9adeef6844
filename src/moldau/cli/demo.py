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

from moldau.cli.demo_group import SESSION_TIMEOUT_S, Members
from moldau.cli.output import Failure, show

STOP_WITHIN_S = 20.0

# Each of them has a partition of their own.
CUSTOMERS = ("eva", "anna", "carla", "tom", "olga", "jan")
ITEMS = ("coffee", "tea", "cake", "water", "soup", "juice", "bread")
PRODUCE = "produce orders --key-separator ,"


def orders(first: int, last: int) -> str:
    """Lines such as `anna,1 coffee`: the key, and what was ordered."""
    lines = []
    for number in range(first, last):
        item = ITEMS[number % len(ITEMS)]
        lines.append(f"{CUSTOMERS[number % len(CUSTOMERS)]},order {number}: {item}\n")
    return "".join(lines)


def demo() -> None:
    """Start a broker, produce, share the work in a group, watch the lag, and kill a member.

    Real processes, a temporary folder and a free port; everything is gone afterwards. It takes
    about half a minute.
    """
    with tempfile.TemporaryDirectory(prefix="moldau-demo-") as folder, _broker(folder) as address:
        story = Story(address)
        story.tell("A topic with six partitions.")
        story.run("topics create orders --partitions 6")
        story.tell(
            "Twelve orders. What stands before the comma is the key, which picks the partition,",
            "so that the orders of one customer stay in order.",
        )
        story.run(PRODUCE, typed=orders(1, 13))
        story.tell("Read some back. A message stays in the log after it was read.")
        story.run(
            "consume orders --from-beginning --max 4"
            " --format 'partition {partition}, offset {offset}: {key}, {value}'"
        )
        with Members(address, "kitchen", count=3, partitions=6) as members:
            _share(story, members)
            _take_over(story, members)
        story.tell("The members have left; the group remembers how far it has read.")
        story.run("groups list")
        story.tell("Any Kafka client could have done the same. Now the broker stops.")
    show("\nDone. Start your own with `moldau broker`.", "bold green")


def _share(story: Story, members: Members) -> None:
    story.tell(
        "Three cooks share the work: three processes, one group. Each partition has one reader,",
        "so that every order is cooked once. Whoever is first begins with the orders from before.",
    )
    members.start()
    members.wait_until_shared()
    members.wait_for(range(1, 13))
    story.tell("Twelve more orders, for all three.")
    story.run(PRODUCE, typed=orders(13, 25), quiet=True)
    members.wait_for(range(13, 25))
    story.tell("Nothing is left to do: the group has no lag.")
    members.wait_for_commits()
    story.run("groups describe kitchen")


def _take_over(story: Story, members: Members) -> None:
    name, partitions = members.next_to_die()
    story.tell(f"Now {name}, who has partitions {partitions}, dies without a word.")
    members.kill_one()
    story.tell("Twelve more orders come in. Those for the dead one have to wait.")
    story.run(PRODUCE, typed=orders(25, 37), quiet=True)
    members.wait_for(range(25, 37), only_of_the_living=True)
    story.tell("This is what lag looks like:")
    members.wait_for_commits()
    story.run("groups describe kitchen")
    story.tell(
        f"After {SESSION_TIMEOUT_S} seconds without a sign of life the group gives its partitions",
        "to the others, who go on exactly where it stopped.",
    )
    members.wait_for(range(25, 37))
    members.wait_until_shared()
    members.wait_for_commits()
    story.run("groups describe kitchen")


class Story:
    """Runs `moldau` commands against one broker and shows them as if they were typed."""

    def __init__(self, address: str) -> None:
        self._environment = os.environ | {"MOLDAU_BOOTSTRAP": address}

    def tell(self, *lines: str) -> None:
        show("\n" + "\n".join(f"# {line}" for line in lines), "bold")

    def run(self, command: str, typed: str = "", *, quiet: bool = False) -> None:
        show(f"$ moldau {command}", "green")
        if typed and not quiet:
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
