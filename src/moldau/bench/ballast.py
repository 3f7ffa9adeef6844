"""Memory kept warm for the page cache.

A hypervisor that takes free memory back from a virtual machine (free page reporting) makes the
next touch of every such page ten times dearer: the kernel copies a written page at 6 GB/s into
memory it still has, at 0.6 GB/s into memory that it must ask for first. What is then measured is
the hypervisor. Memory counts as free for two seconds before it is given back, so touching it ahead
of a sample is not enough.

The ballast is a process that holds touched memory and lets go of it just ahead of a broker's
writes, so that the page cache always finds memory that the machine still owns. On a machine that
keeps its memory it changes nothing.

Commands on standard input, each answered with `done` but for `follow`:

    fill BYTES    hold that much, touched
    follow PID... let go as fast as these write, files or sockets, until the next command
    rest          stop following
"""

from __future__ import annotations

import mmap
import select
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from moldau.bench.child import Children

# Linux keeps up to half a gigabyte of freed pages per processor in lists of its own, from which
# large writes on another processor are not served; the lead must be more than that.
LEAD_BYTES = 1200 << 20
_INTERVAL_S = 0.02
_PAGE = 4096
_BLOCK = 2 << 20
_FILL_TIMEOUT_S = 300


class Ballast:
    """The bench's end: starts the process on first use."""

    def __init__(self, children: Children) -> None:
        self._child = children.start([sys.executable, "-m", "moldau.bench.ballast"])

    @contextmanager
    def under(self, wanted: int, *pids: int) -> Iterator[None]:
        """Have `wanted` bytes of warm memory ready for what `pids` write inside the block."""
        self._child.say(f"fill {min(wanted + LEAD_BYTES, _available() // 2)}")
        self._child.line(_FILL_TIMEOUT_S)
        self._child.say(f"follow {' '.join(map(str, pids))}")
        yield
        self._child.say("rest")
        self._child.line(_FILL_TIMEOUT_S)


class _Held:
    """An anonymous mapping, touched up to its end, let go from its start."""

    def __init__(self, size: int) -> None:
        size = max(_BLOCK, size // _BLOCK * _BLOCK)
        self._memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._memory[::_PAGE] = b"\1" * (size // _PAGE)
        self._size = size
        self._gone = 0

    def let_go(self, up_to: int) -> None:
        up_to = min(self._size, up_to // _BLOCK * _BLOCK)
        if up_to > self._gone:
            self._memory.madvise(mmap.MADV_DONTNEED, self._gone, up_to - self._gone)
            self._gone = up_to

    def close(self) -> None:
        self._memory.close()


def _available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _written_by(pids: Iterable[int]) -> int:
    """Bytes that processes have passed to write calls (wchar)."""
    written = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            if line.startswith("wchar:"):
                written += int(line.split()[1])
    return written


def _answer() -> None:
    sys.stdout.write("done\n")
    sys.stdout.flush()


def main() -> None:
    held: _Held | None = None
    followed: list[int] = []
    start = 0
    while True:
        ready, _, _ = select.select([sys.stdin], [], [], _INTERVAL_S if followed else None)
        if held is not None and followed:
            try:
                held.let_go(_written_by(followed) - start + LEAD_BYTES)
            except OSError:
                followed = []
        if not ready:
            continue
        words = sys.stdin.readline().split()
        match words:
            case ["fill", size]:
                if held is not None:
                    held.close()
                held = _Held(int(size))
                _answer()
            case ["follow", *pids]:
                followed = [int(pid) for pid in pids]
                start = _written_by(followed)
            case ["rest"]:
                followed = []
                _answer()
            case _:
                return


if __name__ == "__main__":
    main()
