"""Share groups that are far behind: what the page cache does not hold is read by threads."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.broker.net.outputs import page_cache
from moldau.broker.sharing import dead_letters, reading
from moldau.broker.sharing.delivery import Dead
from moldau.testing.waiting import until
from tests.broker.api.sharing.member import acquired
from tests.broker.api.sharing.queues import Queue
from tests.broker.wire_client import inside


class Disk:
    """`os` with a page cache that is empty until something is read into it, or for ever."""

    def __init__(self, *, forgets: bool = False) -> None:
        self.forgets = forgets
        self.may_read = threading.Event()
        self.may_read.set()
        # What was read, in this order: into the cache, or with everybody waiting for it.
        self.events: list[str] = []
        self.threads: set[threading.Thread] = set()

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self.events.append("read")
        self.threads.add(threading.current_thread())
        return os.pread(fd, size, position)

    def preadv(self, fd: int, buffers: Any, position: int, flags: int = 0) -> int:
        if flags and (self.forgets or "warm" not in self.events):
            raise BlockingIOError
        if not flags:
            self.may_read.wait(60)
            self.events.append("warm")
        return os.preadv(fd, buffers, position)


def put_in(disk: Disk, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(page_cache, "_NOWAIT", 1)
    for module in (page_cache, reading):
        patch.setattr(module, "os", SimpleNamespace(pread=disk.pread, preadv=disk.preadv))


@pytest.mark.parametrize("forgets", [False, True])
def test_cold_records_are_acquired_once_a_thread_has_read_them(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    queue.put(b"a")
    with queue.member() as member:
        assert member.take() == [(0, 0, 1)]
        queue.put(b"b")
        disk = Disk(forgets=forgets)
        put_in(disk, monkeypatch)
        # Even if it does not want to wait: the next fetch might find the cache empty again.
        assert acquired(member.fetch(wait_ms=0)) == [(1, 1, 1)]
    assert disk.events[0] == "warm"
    assert "read" in disk.events


def test_nothing_is_acquired_for_a_member_that_hangs_up_while_a_thread_reads(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.put(b"a")
    with queue.member("b") as b:
        with queue.member("a") as a:
            assert a.take() == [(0, 0, 1)]
            queue.put(b"b")
            disk = Disk()
            disk.may_read.clear()
            with monkeypatch.context() as patch:
                put_in(disk, patch)
                a.send_fetch(wait_ms=0)
                a.client.expect_nothing()
                a.client.reset()
                sessions = lambda server: len(server.shares.sessions)
                until(lambda: inside(queue.broker, sessions) == 0, "its session ends")
                disk.may_read.set()
                until(lambda: "warm" in disk.events)
        assert b.take() == [(0, 0, 2), (1, 1, 1)]


def test_the_batches_of_dead_letters_are_found_by_a_thread(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.put(b"a")
    queue.put(b"b")
    partition = inside(queue.broker, lambda server: server.partitions[queue.topic, 0])
    dead = Dead(1, 1, 1, True)
    disk = Disk()
    put_in(disk, monkeypatch)

    async def find() -> list[Any]:
        return [wanted async for _, wanted in dead_letters._batches(partition, [dead])]

    assert queue.broker._call(find()) == [[dead]]
    loop = inside(queue.broker, lambda server: threading.current_thread())
    assert disk.threads
    assert loop not in disk.threads
