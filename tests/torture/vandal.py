"""The vandal: does to a data folder what a power failure may do, and more."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from moldau.records.batch import batches
from tests.torture.messages import Ledger

# Base offset and leader epoch are outside of a batch's checksum.
_PREFIX = 16


class Vandal:
    """Damages the folder of a broker that has been killed. Says what it did, for who has to ask."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self._folder = folder
        self._dice = dice
        self.deeds: list[str] = []

    def strike(self, ledger: Ledger) -> None:
        """Harms one partition, but nothing that was acknowledged, seen, or is on disk for sure."""
        folder = self._folder / f"{ledger.place.topic}-{ledger.place.partition}"
        if not folder.is_dir():
            return
        self._harm_tail(folder, max(ledger.promised, self._recovery_point(ledger)))
        if self._dice.random() < 0.5:
            self._harm_indexes(folder)
        if self._dice.random() < 0.4:
            self._harm_small_files(folder)
        if self._dice.random() < 0.4:
            self._leave_rubbish(folder)

    def strike_checkpoints(self) -> None:
        """Takes away files that only save work."""
        names = ["replication-offset-checkpoint", "cleaner-offset-checkpoint"]
        for name in names:
            if self._dice.random() < 0.2:
                self._note(f"removed {name}")
                (self._folder / name).unlink(missing_ok=True)
        if self._dice.random() < 0.3:
            (self._folder / "recovery-point-offset-checkpoint.tmp").write_bytes(b"0\n7\ntorn")

    def _recovery_point(self, ledger: Ledger) -> int:
        """What the broker itself says was forced to disk: damage before it is not a crash's."""
        path = self._folder / "recovery-point-offset-checkpoint"
        for line in path.read_text().splitlines()[2:] if path.exists() else ():
            topic, partition, offset = line.split()
            if (topic, int(partition)) == ledger.place:
                return int(offset)
        return 0

    def _harm_tail(self, folder: Path, promised: int) -> None:
        """Loses, tears or flips something of what comes after all that was promised."""
        loose = []
        for path in sorted(folder.glob("*.log")):
            for position, header in batches(_whole(path)):
                if header.base_offset >= promised:
                    loose.append((path, position, header.size))
        kind = self._dice.choice(["nothing", "cut", "flip", "rubbish"])
        if kind == "rubbish":
            for last in sorted(folder.glob("*.log"))[-1:]:
                with last.open("ab") as file:
                    file.write(self._dice.randbytes(self._dice.randrange(1, 300)))
                self._note(f"rubbish at the end of {last}")
        elif kind != "nothing" and loose:
            path, position, size = self._dice.choice(loose)
            if kind == "cut":
                at = position + self._dice.randrange(size)
                os.truncate(path, at)
            else:
                at = position + self._dice.randrange(_PREFIX, size)
                with path.open("r+b") as file:
                    file.seek(at)
                    byte = file.read(1)[0]
                    file.seek(at)
                    file.write(bytes([byte ^ 1 << self._dice.randrange(8)]))
            self._note(f"{kind} {path} at {at} (promised: before offset {promised})")

    def _harm_indexes(self, folder: Path) -> None:
        for path in [*folder.glob("*.index"), *folder.glob("*.timeindex")]:
            if self._dice.random() < 0.4:
                self._harm(path)

    def _harm_small_files(self, folder: Path) -> None:
        for path in [*folder.glob("*.snapshot"), folder / "leader-epoch-checkpoint"]:
            if path.exists() and self._dice.random() < 0.5:
                self._harm(path)

    def _harm(self, path: Path) -> None:
        kind = self._dice.choice(["remove", "cut", "zeros", "empty"])
        size = path.stat().st_size
        if kind == "remove":
            path.unlink()
        elif kind == "cut":
            os.truncate(path, self._dice.randrange(size + 1))
        elif kind == "zeros":
            with path.open("ab") as file:
                file.write(bytes(self._dice.randrange(1, 50)))
        else:
            os.truncate(path, 0)
        self._note(f"{kind} {path}")

    def _leave_rubbish(self, folder: Path) -> None:
        """Leftovers of a deletion, of a compaction that had not got far, and of one that had."""
        logs = sorted(folder.glob("*.log"))
        rubbish = self._dice.randbytes(100)
        kind = self._dice.choice(["deleted", "cleaned", "unfinished swap", "swap", "tmp"])
        if kind == "deleted":
            (folder / "00000000000000000000.log.deleted").write_bytes(rubbish)
        elif kind == "cleaned":
            (folder / "00000000000000000000.log.0123abcd.cleaned").write_bytes(rubbish)
        elif kind == "unfinished swap":
            (folder / "00000000000000000000.log.swap").write_bytes(rubbish)
            (folder / "00000000000000000000.index.0123abcd.cleaned").write_bytes(rubbish)
        elif kind == "tmp":
            (folder / "leader-epoch-checkpoint.tmp").write_bytes(rubbish)
        elif len(logs) > 2:
            # Whole, and forced to disk under that name before the old one went.
            source = self._dice.choice(logs[:-2])
            shutil.copyfile(source, f"{source}.swap")
            if self._dice.random() < 0.5:
                source.unlink()
        self._note(f"left {kind} in {folder}")

    def _note(self, deed: str) -> None:
        self.deeds.append(deed)


def _whole(path: Path) -> bytes:
    """A segment up to its last whole batch: a kill may have torn a write."""
    data = path.read_bytes()
    end = 0
    while end + 12 <= len(data):
        size = 12 + int.from_bytes(data[end + 8 : end + 12], "big")
        if end + size > len(data):
            break
        end += size
    return data[:end]
