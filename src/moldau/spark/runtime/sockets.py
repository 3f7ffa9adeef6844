"""Unix sockets between Java and its Python workers, in a folder that goes with this process.

Over TCP both lose 40 ms a task waiting for acknowledgements. Spark leaves the files of its sockets
where they are, so they get a folder of their own. They are not the default: processes of Spark's
own, which plan a source, print a stack when Java has closed a socket before they are done.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

# The kernel takes paths of 107 bytes, of which Spark's names of sockets have 42.
_LONGEST = 107 - 42
SOCKETS = "spark.python.unix.domain.socket.enabled"
FOLDER = "spark.python.unix.domain.socket.dir"
_NAME = re.compile(r"moldau-sockets-(\d+)-\w+")


def socket_settings() -> dict[str, str]:
    """Return Spark's setting for where the sockets are; none where the temporary folder's path is
    too long."""
    folder = _folder(os.getpid())
    return {} if folder is None else {FOLDER: str(folder)}


@cache
def _folder(process: int) -> Path | None:
    parent = Path(tempfile.gettempdir())
    _sweep(parent)
    prefix = f"moldau-sockets-{process}-"
    if len(os.fsencode(parent / prefix)) + 8 > _LONGEST:
        return None
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _sweep(parent: Path) -> None:
    """Remove the folders of processes that were killed."""
    for each in parent.glob("moldau-sockets-*"):
        match = _NAME.fullmatch(each.name)
        if match is not None and not _is_alive(int(match[1])):
            shutil.rmtree(each, ignore_errors=True)


def _is_alive(process: int) -> bool:
    with suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True
