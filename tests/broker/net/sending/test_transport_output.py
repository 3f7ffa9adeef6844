"""The send queue over a transport: pieces of files, a transport that is full, turns."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from functools import partial
from pathlib import Path

import pytest
import uvloop

from moldau.broker.net.outputs import output, transport_output
from moldau.broker.net.outputs.transport_output import TransportOutput
from moldau.log.files.open_files import Slice
from tests.broker.net.sending.outputs import CONTENT, Run, Wire, opened, run

# The transport's form


@pytest.fixture
def on_transport() -> Run:
    return partial(run, TransportOutput, uvloop.new_event_loop)


def test_a_transport_is_given_no_more_of_a_file_than_a_piece_ahead_of_its_peer(
    on_transport: Run, tmp_path: Path
) -> None:
    file = opened(tmp_path)
    os.ftruncate(file.fd, 1 << 30)

    async def work(wire: Wire) -> None:
        wire.output.put(Slice(file, 0, 1 << 30))
        wire.output.flush()
        for _ in range(100):
            assert wire.output.backed_up
            assert wire.transport.get_write_buffer_size() <= transport_output._PIECE
            await wire.receive(100_000)

    on_transport(work)


def test_a_transport_lets_others_have_their_turn_within_a_slice(
    on_transport: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_output, "_MOST_AT_ONCE", 1000)
    monkeypatch.setattr(transport_output, "_PIECE", 1000)
    file = opened(tmp_path)

    async def work(wire: Wire) -> None:
        wire.output.put(Slice(file, 0, 3500))
        wire.output.flush()
        assert wire.peer.recv(1 << 20) == CONTENT[:1000]
        assert wire.output.backed_up
        wire.output.put(b"last")
        wire.output.flush()
        assert await wire.receive(2504) == CONTENT[1000:3500] + b"last"
        assert wire.drained == 1
        wire.output.put(Slice(file, 0, 3500))
        wire.output.flush()
        # Its next turn comes when there is nothing left to send.
        wire.output.close()
        await asyncio.sleep(0.01)
        assert wire.peer.recv(1 << 20) == CONTENT[:1000]
        assert wire.drained == 1

    on_transport(work)


def test_a_transport_that_is_full_when_a_thread_has_read_is_waited_for(
    on_transport: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened(tmp_path)
    may_read = threading.Event()
    has_read = threading.Event()

    def read(piece: Slice) -> None:
        may_read.wait(60)
        has_read.set()

    monkeypatch.setattr(output, "warm", read)
    monkeypatch.setattr(output, "is_warm", lambda *place: False)

    async def work(wire: Wire) -> None:
        wire.output.put(Slice(file, 0, 100))
        wire.output.put(b"end")
        wire.output.flush()
        wire.output.pause_writing()
        may_read.set()
        await wire.until(has_read.is_set)
        await asyncio.sleep(0.01)
        with pytest.raises(BlockingIOError):
            wire.peer.recv(1)
        assert wire.output.backed_up
        assert wire.drained == 0
        wire.output.resume_writing()
        assert await wire.receive(103) == CONTENT[:100] + b"end"
        assert wire.drained == 1
        # Nobody waits any more: another word from the transport changes nothing.
        wire.output.resume_writing()
        assert wire.drained == 1

    on_transport(work)


def test_a_transport_that_is_full_after_a_cold_slice_has_the_next_one_read_by_a_thread(
    on_transport: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened(tmp_path)
    size = transport_output._PIECE
    read: list[Slice] = []
    monkeypatch.setattr(output, "warm", read.append)
    monkeypatch.setattr(output, "is_warm", lambda *place: False)

    async def work(wire: Wire) -> None:
        wire.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, size // 4
        )
        pieces = [Slice(file, 0, size), Slice(file, 1, size), Slice(file, 2, size)]
        for piece in pieces:
            wire.output.put(piece)
        wire.output.flush()
        expected = b"".join(CONTENT[place : place + size] for _, place, _ in pieces)
        # The transport has all of the first slice, and waits for its peer to take it.
        await wire.until(wire.transport.get_write_buffer_size)
        assert await wire.receive(len(expected)) == expected
        assert read == pieces

    on_transport(work)


def test_a_transport_that_has_something_to_send_already_is_waited_for(on_transport: Run) -> None:
    """As under TLS, whose handshake may not have left yet."""

    async def work(wire: Wire) -> None:
        wire.transport.set_write_buffer_limits(high=1 << 30)
        wire.transport.write(CONTENT)
        wire.output.begin()
        assert wire.output.backed_up
        wire.output.put(b"end")
        wire.output.flush()
        assert await wire.receive(len(CONTENT) + 3) == CONTENT + b"end"
        await wire.until(lambda: wire.drained == 1)

    on_transport(work)
