"""The state file: where a followed path stands, for one topic of one cluster.

    {"topic": ..., "cluster": ..., "path": ..., "clean": false, "offsets": {"0": 9}, "files": [...]}

`offsets` say where in the topic's partitions to look for what was delivered since: every record of
a line behind a saved position lies at or after them. `clean` means that there is none. The file is
replaced as a whole and on the disk before anything relies on it; a lock beside it keeps a second
collector away for as long as the first one lives.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from typing import IO

import msgspec

from moldau.cli.follow.marks import Marks
from moldau.cli.views.output import Failure


class KnownFile(msgspec.Struct):
    """A file of the path: the one that it leads to, or one that it led to before (`rotated`)."""

    id: str
    device: int
    inode: int
    place: Marks
    rotated: bool = False


class State(msgspec.Struct):
    topic: str
    cluster: str
    path: str
    clean: bool = True
    offsets: dict[str, int] = {}
    files: list[KnownFile] = []


class StateFile:
    """The state file of one path, locked. `saved` is None when there was none."""

    def __init__(self, folder: Path, cluster: str, topic: str, path: Path) -> None:
        self.empty = State(topic, cluster, str(path))
        identity = "\0".join((cluster, topic, str(path))).encode()
        digest = hashlib.blake2b(identity, digest_size=8).hexdigest()
        self.file = folder / f"{topic}.{path.name}.{digest}.json"
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._take_lock(topic, path)
        self.saved = self._load()

    def _take_lock(self, topic: str, path: Path) -> IO[str]:
        lock = open(self.file.with_suffix(".lock"), "a+", encoding="utf-8")  # noqa: SIM115
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip()
            lock.close()
            raise Failure(
                f"{path} is already being followed into {topic}, by process {owner or '(unknown)'}",
                "stop that process; or, to send every line twice, use another --state folder for "
                "this one",
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        return lock

    def _load(self) -> State | None:
        try:
            content = self.file.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(content, type=State)
        except (msgspec.DecodeError, msgspec.ValidationError) as problem:
            raise Failure(
                f"{self.file} is not a collector's state: {problem}",
                "remove it to start from the beginning of the files; lines will then be sent again",
            ) from None

    def save(self, state: State) -> None:
        beside = self.file.with_suffix(".new")
        try:
            with open(beside, "wb") as file:
                file.write(msgspec.json.encode(state) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self.file)
        except OSError as problem:
            raise Failure(
                f"the position in {state.path} could not be saved: {problem}",
                "no line is lost or sent twice; start again when there is disk space",
            ) from None

    def close(self) -> None:
        """Let go of the lock. Its file stays: another may wait for it by now."""
        self._lock.close()


def default_folder() -> Path:
    """Return where state goes that outlives a run but is no configuration, by the XDG
    convention."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "moldau" / "follow"
