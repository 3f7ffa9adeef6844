"""A process that a test starts, and that ends with it, whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A program that talks in text. With `start_new_session` all its children end with it, too.

    Leaving the block of a Popen waits for one that goes on, without end.
    """
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            if options.get("start_new_session") and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
