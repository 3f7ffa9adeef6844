"""Simulated disks lose in a power failure what real ones may lose, and nothing else."""

from __future__ import annotations

import random

from tests.simulation.disk.disk import Disk


def write(disk: Disk, path: str, content: bytes, *, forced: bool) -> None:
    file = disk.names[path] = disk.new_file()
    file.write(0, content)
    if forced:
        disk.force_file(path, file)


def made_anew(seed: int) -> Disk:
    """A folder with a file that is on the disk, and in its place another one that is not."""
    disk = Disk("/data", random.Random(seed), lambda: 0.0)
    disk.names["/data/t-0"] = None
    write(disk, "/data/t-0/log", b"old", forced=True)
    write(disk, "/data/t-0/id", b"", forced=True)
    disk.rename("/data/t-0", "/data/t-0-delete")
    disk.remove("/data/t-0-delete")
    disk.names["/data/t-0"] = None
    write(disk, "/data/t-0/id", b"new", forced=False)
    return disk


def contents(disk: Disk) -> dict[str, bytes]:
    return {path: bytes(file.content) for path, file in disk.names.items() if file is not None}


def test_a_power_failure_never_leaves_files_of_two_folders_in_one() -> None:
    outcomes = set()
    for seed in range(200):
        disk = made_anew(seed)
        disk.lose_power()
        left = contents(disk)
        has_old = left.get("/data/t-0/log") == b"old"
        has_new = bool(left.get("/data/t-0/id"))
        assert not (has_old and has_new), left
        outcomes.add((has_old, has_new))
    assert outcomes >= {(True, False), (False, True)}


def test_a_folder_that_was_forced_to_disk_is_the_one_that_is_left() -> None:
    for seed in range(50):
        disk = made_anew(seed)
        path = "/data/t-0/id"
        if seed % 2:
            file = disk.names[path]
            assert file is not None
            disk.force_file(path, file)
        else:
            disk.force_folder("/data")
        disk.lose_power()
        assert "/data/t-0/log" not in disk.names
        assert "/data/t-0" in disk.names
        assert contents(disk).get(path) == b"new" or not seed % 2
