"""Drivers to be killed: Spark in a process of its own, with Java and all workers.

MOLDAU_TEST_KILLS says how often (2: the torture of pipelines kills more), MOLDAU_TEST_SEED when (a
new seed each time, which is shown).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tests.spark.standalone import QUICK_JAVA

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("MOLDAU_TEST_KILLS", "2"))
SEED = int(os.environ.get("MOLDAU_TEST_SEED", "0")) or random.randrange(1, 1 << 32)
DRIVER_WITHIN_S = 180.0
# From the first batch of a driver to its death: one batch and its upkeep take about as long.
LONGEST_LIFE_S = 1.5


class Driver:
    """`python ARGUMENTS...` in a process group of its own, which does not outlive the block."""

    def __init__(self, *arguments: str, log: Path, takes_orders: bool = False) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env=os.environ | {"JDK_JAVA_OPTIONS": QUICK_JAVA},
                stdin=subprocess.PIPE if takes_orders else subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.kill()

    def kill(self) -> None:
        """kill -9 of the process and Java; their Python workers notice."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(60)

    def wait_until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DRIVER_WITHIN_S
        while not done():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)

    def said(self, most: int = 3000) -> str:
        return self._log.read_text("utf-8", "replace")[-most:]
