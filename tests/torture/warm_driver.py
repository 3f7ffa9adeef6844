"""A driver that is there before it is needed, and that takes one order after another."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from tests.spark.drivers import DRIVER_WITHIN_S, Driver
from tests.spark.processes import of_driver
from tests.torture.sink_driver import Answer, Order


class WarmDriver(Driver):
    """`python -m tests.torture.sink_driver ARGUMENTS...`"""

    def __init__(self, *arguments: str, log: Path) -> None:
        super().__init__("-m", "tests.torture.sink_driver", *arguments, log=log, takes_orders=True)
        self._order = -1

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def is_working(self) -> bool:
        """Whether it has an order, and neither carried it out nor died."""
        return self.is_alive and self._order >= 0 and self.answer() is None

    def wait_until_ready(self) -> None:
        self.wait_until(lambda: "ready" in self._lines())

    def give(self, order: Order) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(order) + b"\n")
        self.process.stdin.flush()
        self._order = order.number

    def answer(self) -> Answer | None:
        """What it says of its last order, once it does."""
        for line in self._lines():
            if line.startswith("answer "):
                with suppress(msgspec.DecodeError):
                    answer = msgspec.json.decode(line.removeprefix("answer "), type=Answer)
                    if answer.number == self._order:
                        return answer
        return None

    def wait(self) -> Answer | None:
        """Until it has carried out its order, or died."""
        deadline = time.monotonic() + DRIVER_WITHIN_S
        while self.is_working:
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.05)
        return self.answer()

    def written(self) -> set[str]:
        """The single writes that it has made and said so."""
        return {line.removeprefix("wrote ") for line in self._lines() if line.startswith("wrote ")}

    def freeze(self, *, with_workers: bool) -> None:
        os.killpg(self.pid, signal.SIGSTOP)
        if with_workers:
            self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in of_driver(self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _lines(self) -> list[str]:
        return self._log.read_text("utf-8", "replace").splitlines()
