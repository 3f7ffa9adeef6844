"""Disks that fail under running brokers: damaged segments, and fsyncs that are refused."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from moldau.testing import Cluster

_SHIM = """
import errno, os

_fsync = os.fsync
_folder = {folder!r}

def fsync(descriptor):
    path = os.readlink(f"/proc/self/fd/{{descriptor}}")
    if path.endswith(".log") and os.path.exists(f"{{_folder}}/{{os.getpid()}}"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    _fsync(descriptor)

os.fsync = fsync
"""


class FailingDisks:
    """Brokers that are started from now on have disks on which fsync of segments can fail."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        (folder / "sitecustomize.py").write_text(_SHIM.format(folder=str(folder)))
        path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        monkeypatch.setenv("PYTHONPATH", path)

    def fail(self, cluster: Cluster, broker: int) -> None:
        (self._folder / str(cluster.pid(broker))).touch()

    def mend(self, cluster: Cluster, broker: int) -> None:
        (self._folder / str(cluster.pid(broker))).unlink()


def damage(cluster: Cluster, broker: int, topic: str, batch: int, partition: int = 0) -> None:
    """Destroy the length of a batch in the first segment, under the running broker."""
    path = cluster.data_dir(broker) / f"{topic}-{partition}" / "00000000000000000000.log"
    with path.open("r+b") as file:
        position = 0
        for _ in range(batch):
            file.seek(position + 8)
            position += 12 + struct.unpack(">i", file.read(4))[0]
        file.seek(position + 8)
        file.write(struct.pack(">i", 2**30))


def set_aside(cluster: Cluster, broker: int, topic: str, partition: int = 0) -> list[Path]:
    """What the broker keeps of damaged logs."""
    return list(cluster.data_dir(broker).glob(f"{topic}-{partition}.*-damaged"))
