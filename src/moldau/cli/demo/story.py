"""The stage of `moldau demo`: a broker, and commands shown as if typed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moldau.cli.views.output import Failure, show

STOP_WITHIN_S = 20.0


class Story:
    """Runs `moldau` commands against one broker and shows them as if they were typed."""

    def __init__(self, address: str) -> None:
        self.address = address
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
def running_broker(folder: Path) -> Iterator[str]:
    """Yield the address of a broker process, which is stopped with SIGTERM: that must work."""
    from moldau.local.ports import free_ports

    http = f"127.0.0.1:{free_ports(1)[0]}"
    command = ["broker", "--data-dir", str(folder), "--listen", "127.0.0.1:0", "--http", http]
    show("# A real broker, in its own process.", "bold")
    show(f"$ moldau {shlex.join(command)}", "green")
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "broker-output.txt"
    with open(log, "wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "moldau", *command],
            stdout=subprocess.PIPE,
            stderr=stderr,
            # Ctrl-C is for the demo, which then stops what reads from the broker first.
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        ready = process.stdout.readline().decode().strip()
        if " ready on " not in ready:
            raise Failure("the broker did not start", f"its log ends with: {_tail(log)}")
        show(ready, "cyan")
        show(f"# Watch it in a browser at http://{http}/console/; /metrics is there, too.", "bold")
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
