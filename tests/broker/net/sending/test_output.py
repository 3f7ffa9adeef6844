"""The send queue of a connection: bytes and slices of files in order, over a socket that is full,
cold, or gone. In every form that it has."""

from __future__ import annotations

import asyncio
import os
import threading
from functools import partial
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.broker.net.outputs import output, page_cache
from moldau.broker.net.outputs.socket_output import SocketOutput
from moldau.broker.net.outputs.transport_output import TransportOutput
from moldau.log.files.open_files import Slice
from tests.broker.net.sending.outputs import CONTENT, Run, Wire, opened, run

FORMS = [
    pytest.param((SocketOutput, uvloop.new_event_loop), id="socket"),
    pytest.param((TransportOutput, uvloop.new_event_loop), id="transport"),
    pytest.param((TransportOutput, asyncio.SelectorEventLoop), id="transport-of-asyncio"),
]


@pytest.fixture(params=FORMS)
def on_loop(request: pytest.FixtureRequest) -> Run:
    return partial(run, *request.param)


def test_bytes_and_slices_leave_in_order(on_loop: Run, tmp_path: Path) -> None:
    file = opened(tmp_path)

    async def work(wire: Wire) -> None:
        for part in (b"one", Slice(file, 10, 20), bytearray(b"two"), Slice(file, 0, 5), b"end"):
            wire.output.put(part)
        wire.output.flush()
        expected = b"one" + CONTENT[10:30] + b"two" + CONTENT[:5] + b"end"
        assert await wire.receive(len(expected)) == expected
        assert not wire.output.backed_up
        # Nobody waited, so nobody is told.
        assert wire.drained == 0

    on_loop(work)


def test_nothing_leaves_before_flush(on_loop: Run, tmp_path: Path) -> None:
    async def work(wire: Wire) -> None:
        wire.output.put(b"later")
        await asyncio.sleep(0)
        with pytest.raises(BlockingIOError):
            wire.peer.recv(1)
        wire.output.flush()
        assert await wire.receive(5) == b"later"

    on_loop(work)


@pytest.mark.parametrize("is_slice", [False, True])
def test_a_full_socket_is_waited_for_and_the_end_of_the_wait_is_told(
    on_loop: Run, tmp_path: Path, is_slice: bool
) -> None:
    file = opened(tmp_path)

    async def work(wire: Wire) -> None:
        total = 0
        for _ in range(5):
            wire.output.put(Slice(file, 0, len(CONTENT)) if is_slice else CONTENT)
            total += len(CONTENT)
        wire.output.flush()
        assert wire.output.backed_up
        # What comes while it waits goes to the end of the line.
        wire.output.put(b"last")
        wire.output.flush()
        assert await wire.receive(total + 4) == CONTENT * 5 + b"last"
        await wire.until(lambda: wire.drained == 1)
        assert not wire.output.backed_up

    on_loop(work)


def test_a_peer_that_has_gone_is_told_once(on_loop: Run, tmp_path: Path) -> None:
    file = opened(tmp_path)

    async def work(wire: Wire) -> None:
        wire.peer.close()
        for part in (b"x", Slice(file, 0, 100)):
            wire.output.put(part)
            wire.output.flush()
        await wire.until(lambda: wire.failures)
        assert len(wire.failures) == 1
        assert wire.drained == 0

    on_loop(work)


def test_a_peer_that_goes_while_the_socket_is_full_is_told(on_loop: Run, tmp_path: Path) -> None:
    file = opened(tmp_path)

    async def work(wire: Wire) -> None:
        for _ in range(10):
            wire.output.put(Slice(file, 0, len(CONTENT)))
        wire.output.flush()
        assert wire.output.backed_up
        wire.peer.close()
        await wire.until(lambda: wire.failures)
        assert wire.drained == 0

    on_loop(work)


def test_a_cold_slice_is_read_by_a_thread_and_keeps_its_place(
    on_loop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened(tmp_path)
    threads = []
    warm = page_cache.warm

    def note(piece: Slice) -> None:
        threads.append(threading.current_thread())
        warm(piece)

    monkeypatch.setattr(output, "warm", note)
    monkeypatch.setattr(output, "is_warm", lambda *place: False)

    async def work(wire: Wire) -> None:
        for part in (b"before", Slice(file, 0, 300_000), b"between", Slice(file, 5, 10), b"after"):
            wire.output.put(part)
        wire.output.flush()
        assert wire.output.backed_up
        expected = b"before" + CONTENT[:300_000] + b"between" + CONTENT[5:15] + b"after"
        assert await wire.receive(len(expected)) == expected
        await wire.until(lambda: wire.drained == 1)
        assert len(threads) == 2
        assert threading.current_thread() not in threads

    on_loop(work)


def test_an_output_may_be_closed_while_a_thread_reads_for_it(
    on_loop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened(tmp_path)
    may_read = threading.Event()
    monkeypatch.setattr(output, "warm", lambda piece: may_read.wait(60))
    monkeypatch.setattr(output, "is_warm", lambda *place: False)

    async def work(wire: Wire) -> None:
        wire.output.put(Slice(file, 0, 100))
        wire.output.flush()
        wire.output.close()
        may_read.set()
        await asyncio.sleep(0.01)
        assert not wire.failures
        assert wire.drained == 0

    on_loop(work)


def test_a_read_that_fails_is_told(
    on_loop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened(tmp_path)

    def fail(piece: Slice) -> None:
        raise OSError("input/output error")

    monkeypatch.setattr(output, "warm", fail)
    monkeypatch.setattr(output, "is_warm", lambda *place: False)

    async def work(wire: Wire) -> None:
        wire.output.put(Slice(file, 0, 100))
        wire.output.flush()
        await wire.until(lambda: wire.failures)

    on_loop(work)


def test_a_file_that_is_shorter_than_promised_is_told(on_loop: Run, tmp_path: Path) -> None:
    file = opened(tmp_path)
    os.ftruncate(file.fd, 50)

    async def work(wire: Wire) -> None:
        wire.output.put(Slice(file, 0, 100))
        wire.output.flush()
        assert "promised" in str(wire.failures[0])

    on_loop(work)


def test_close_lets_go_of_files_and_may_come_twice(on_loop: Run, tmp_path: Path) -> None:
    file = opened(tmp_path)
    fd = file.fd

    async def work(wire: Wire) -> None:
        nonlocal file
        for _ in range(10):
            wire.output.put(Slice(file, 0, len(CONTENT)))
        del file
        wire.output.flush()
        assert os.fstat(fd).st_size == len(CONTENT)
        wire.output.close()
        wire.output.close()
        wire.output.put(b"too late")
        wire.output.flush()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)

    on_loop(work)


# All forms


def test_what_the_page_cache_holds_is_warm(tmp_path: Path) -> None:
    file = opened(tmp_path)
    assert page_cache.is_warm(file.fd, 0, len(CONTENT))
    page_cache.warm(Slice(file, 0, len(CONTENT)))
    # Beyond the end there is nothing to read, and nothing to wait for.
    page_cache.warm(Slice(file, len(CONTENT), 100))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(
        st.one_of(
            st.binary(min_size=1, max_size=50),
            st.tuples(st.integers(0, 1000), st.integers(1, 200_000)),
        ),
        min_size=1,
        max_size=12,
    ),
    flush_each=st.booleans(),
)
def test_whatever_is_put_arrives_as_it_was_put(
    on_loop: Run, tmp_path: Path, parts: list[bytes | tuple[int, int]], flush_each: bool
) -> None:
    file = opened(tmp_path)

    async def work(wire: Wire) -> None:
        expected = b""
        for part in parts:
            if isinstance(part, bytes):
                wire.output.put(part)
                expected += part
            else:
                position, size = part
                wire.output.put(Slice(file, position, size))
                expected += CONTENT[position : position + size]
            if flush_each:
                wire.output.flush()
        wire.output.flush()
        assert await wire.receive(len(expected)) == expected

    on_loop(work)
