"""The disks of a cluster's brokers: slow, full, failing, and forgetful when the power fails.

The brokers run with `preload/sitecustomize.py` below them, which keeps count of what fsync has made
safe. A power failure, which is a kill and then `forget`, takes away the rest: of every file the
bytes beyond its last fsync are gone, or torn at a random place. New names and renames in a folder
are always kept, which a real disk does not promise without an fsync of the folder.
"""

from __future__ import annotations

import os
import random
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

_PRELOAD = Path(__file__).parent / "preload"


class Disks:
    """The disks below `root`, one for each folder in it. Brokers must be started within `below`."""

    def __init__(self, root: Path, dice: random.Random) -> None:
        self._root = root
        self._dice = dice

    def below(self) -> AbstractContextManager[object]:
        """The environment in which brokers get these disks."""
        path = os.pathsep.join(filter(None, [str(_PRELOAD), os.environ.get("PYTHONPATH")]))
        return patch.dict(os.environ, MOLDAU_DISKS=str(self._root), PYTHONPATH=path)

    def set(
        self, name: str, *, fsync_s: float = 0.0, is_full: bool = False, fails: bool = False
    ) -> None:
        """Say how a disk fares from now on; one that fails refuses every fsync."""
        word = "full" if is_full else "failing" if fails else "roomy"
        state = self._root / f"{name}.disk"
        temporary = state.with_suffix(".new")
        temporary.write_text(f"{fsync_s} {word}", "ascii")
        temporary.replace(state)

    def forget(self, name: str) -> str:
        """Take away what was not forced to the disk of a broker that is dead; what that was."""
        durable: dict[int, int] = {}
        noted = self._root / f"{name}.durable"
        # A kill may have torn the last line, of an fsync that nobody was told of.
        for line in noted.read_text("ascii").split("\n")[:-1] if noted.exists() else ():
            inode, size = map(int, line.split())
            durable[inode] = size
        files = lost = 0
        for path in sorted((self._root / name).rglob("*")):
            if not path.is_file():
                continue
            found = path.stat()
            safe = min(found.st_size, durable.get(found.st_ino, 0))
            end = self._dice.choice([safe, safe, self._dice.randint(safe, found.st_size)])
            if end < found.st_size:
                os.truncate(path, end)
                files += 1
                lost += found.st_size - end
        return f"{lost} bytes in {files} files"
