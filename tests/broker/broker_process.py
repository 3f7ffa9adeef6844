"""A broker in a process of its own, for tests that kill it or look at its memory."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.broker.wire_client import PATIENCE_S


class BrokerProcess:
    """`moldau broker` on a free port; killed at the end of a `with` block if it still runs."""

    def __init__(
        self,
        folder: Path,
        settings: Sequence[str] = (),
        port: int = 0,
        limit_files: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self._log = folder.with_name(f"{folder.name}.stderr")
        words = [sys.executable, "-m", "moldau", "broker", "--listen", f"127.0.0.1:{port}"]
        words += ["--data-dir", str(folder)]
        for setting in settings:
            words += ["--set", setting]
        if limit_files is not None:
            words = ["sh", "-c", f'ulimit -n {limit_files}; exec "$@"', "sh", *words]
        self.launched = time.monotonic()
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                words,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | dict(environment or {}),
            )
        self.port = port

    def __enter__(self) -> Self:
        self.wait_ready()
        return self

    def __exit__(self, *problem: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.fullmatch(r"moldau broker \d+ ready on 127\.0\.0\.1:(\d+)\n", line)
        assert found, f"the broker said {line!r} and {self.log!r}"
        self.port = int(found[1])

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def log(self) -> str:
        """What it has written to stderr."""
        return self._log.read_text()

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal and waits; the exit status."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def resident_mib(self) -> float:
        return self._memory("VmRSS")

    def peak_mib(self) -> float:
        """The most it has taken since `reset_peak`."""
        return self._memory("VmHWM")

    def reset_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def _memory(self, field: str) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{field}:\s+(\d+) kB", status)
        assert found, status
        return int(found[1]) / 1024
