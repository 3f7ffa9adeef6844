"""Recorded histories: what random histories led to on another machine, without any broker.

Of the simulator alone (its loop, network and ZooKeeper), which seldom changes. With brokers, every
change of the product would make another history; that theirs depend on nothing but the seed is
tested by running them in other processes. `python -m tests.simulation.report.recorded` makes the
record anew.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.simulation.zookeeper.histories import history
from tests.simulation.zookeeper.virtual import Virtual

_RECORD = Path(__file__).with_name("recorded.json")
_HISTORIES = 4


def of_the_simulator() -> str:
    """What random histories lead to on the simulated ZooKeeper, without any broker."""
    digest = hashlib.blake2b(digest_size=16)
    for seed in range(_HISTORIES):
        virtual = Virtual(seed)
        for step in history(seed):
            answer = virtual.do(step)
            digest.update(f"{virtual.loop.now_s!r} {virtual.loop.steps} {answer!r}".encode())
        digest.update(repr(sorted(virtual.fired)).encode())
    return digest.hexdigest()


def recorded() -> dict[str, Any]:
    """The record."""
    found: dict[str, Any] = json.loads(_RECORD.read_text())
    return found


def record() -> Path:
    """Make the record anew; return where it is."""
    _RECORD.write_text(json.dumps({"simulator": of_the_simulator()}, indent=2) + "\n")
    return _RECORD


if __name__ == "__main__":
    print(f"recorded in {record()}")
