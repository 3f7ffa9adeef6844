"""A broker in its own process."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from moldau.local.watchdog import Watchdog

READY_WITHIN_S = 180.0
STOP_WITHIN_S = 60.0
_LOG_TAIL = 3000


class BrokerFailed(RuntimeError):
    """A broker's process did not do what it should; the message has the end of its log."""


def broker_command(
    broker: int,
    *,
    listen: str,
    data_dir: Path,
    zookeeper: str,
    advertise: str | None = None,
    settings: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> list[str]:
    """Return the command that runs a broker of a cluster.

    One with a `config` listens where that says.
    """
    words = [sys.executable, "-m", "moldau", "broker", "--id", str(broker)]
    words += ["--listen", listen] if config is None else ["--config", str(config)]
    words += ["--data-dir", str(data_dir), "--zookeeper", zookeeper]
    if advertise is not None:
        words += ["--advertise", advertise]
    for key, value in (settings or {}).items():
        words += ["--set", f"{key}={value}"]
    return words


class BrokerProcess:
    """`moldau broker`, from its start to its end; for one thread.

    What it logs goes to `log`. It has a session of its own, so that Ctrl-C in a terminal reaches
    only who started it, and it does not outlive this process. `environment` comes on top of this
    process's own.
    """

    def __init__(
        self,
        command: list[str],
        log: IO[bytes] | int,
        log_path: Path | None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.command = command
        self._log_path = log_path
        self.is_frozen = False
        self._pending = b""
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | dict(environment or {}),
            start_new_session=True,
        )
        self.pid = self.process.pid
        self._watchdog = Watchdog(self.pid)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def wait_ready(self, within_s: float = READY_WITHIN_S) -> str:
        """Return the line that it prints once it serves; BrokerFailed if there is none in time."""
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        deadline = time.monotonic() + within_s
        while b"\n" not in self._pending:
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([descriptor], [], [], left)
            got = os.read(descriptor, 4096) if ready else b""
            if not got:
                why = "ended" if ready else f"was not ready within {within_s:g} s"
                raise BrokerFailed(f"{' '.join(self.command[1:6])} {why}{self._log_tail()}")
            self._pending += got
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode()

    def stop(self, within_s: float = STOP_WITHIN_S) -> None:
        """Ask it to end (SIGTERM) and wait until it has; BrokerFailed if that goes wrong."""
        self.ask_to_stop()
        self.wait_stopped(within_s)

    def ask_to_stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait_stopped(self, within_s: float = STOP_WITHIN_S) -> None:
        try:
            status = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise BrokerFailed(
                f"broker {self.pid} still runs {within_s:g} s after SIGTERM{self._log_tail()}"
            ) from None
        self._release()
        if status != 0:
            raise BrokerFailed(f"broker {self.pid} ended with {status}{self._log_tail()}")

    def kill(self) -> None:
        """End it at once, frozen or not, if it still runs."""
        if self.is_running:
            self.process.kill()
        self.process.wait(STOP_WITHIN_S)
        self._release()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        self.is_frozen = False
        self.process.send_signal(signal.SIGCONT)

    def _release(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._watchdog.dismiss()

    def _log_tail(self) -> str:
        if self._log_path is None or not self._log_path.exists():
            return ""
        text = self._log_path.read_text("utf-8", "replace")[-_LOG_TAIL:]
        return f"; its log ends with:\n{text}"
