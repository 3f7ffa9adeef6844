"""The connections between brokers: one a purpose, at the address of the latest registration."""

from __future__ import annotations

import asyncio
import ctypes
import socket
import struct
from collections.abc import Coroutine
from typing import Any

import pytest

from moldau.peer import aio
from moldau.peer.errors import ConnectionLost, ConnectionRefused
from moldau.peer.peers import PeerAddress, Peers, Purpose
from moldau.testing.waiting import until_async
from moldau.wire.apis import Api
from moldau.wire.headers import response_frame
from moldau.wire.messages import encode_response

WITHIN_S = 60
_SO_ATTACH_FILTER = 26
ONE = Purpose("one")
OTHER = Purpose("other")
PATIENT = Purpose("patient", first_backoff_s=60.0, longest_backoff_s=60.0)
SILENT = Purpose("silent", greets=False)
# What is relayed here: the body is no matter, and neither is the answer.
QUESTION = (int(Api.METADATA), 0, b"\0\0\0\0")


class FakeBroker:
    """Greets whoever connects, and answers what it is asked with `answer`, or not at all."""

    def __init__(self) -> None:
        self.answer: bytes | None = b"answer"
        self.client_ids: list[str] = []
        self.connections: list[asyncio.StreamWriter] = []
        self.ignored = 0
        self.closed = 0
        self.epoch = 1
        self.port = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> FakeBroker:
        await self.listen()
        return self

    async def __aexit__(self, *problem: object) -> None:
        self.hide()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def hide(self) -> None:
        """Listen no more, and hang up on everybody."""
        assert self._server is not None
        self._server.close()
        for each in self.connections:
            each.transport.abort()

    @property
    def address(self) -> PeerAddress:
        return PeerAddress("127.0.0.1", self.port, self.epoch)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                frame = await reader.readexactly(size)
                api, version = int.from_bytes(frame[:2]), int.from_bytes(frame[2:4])
                correlation_id = int.from_bytes(frame[4:8])
                if api == Api.API_VERSIONS:
                    self.client_ids.append(frame[10 : 10 + int.from_bytes(frame[8:10])].decode())
                    values = {"error_code": 0, "api_keys": []}
                    body = encode_response(Api.API_VERSIONS, version, values)
                elif self.answer is None:
                    self.ignored += 1
                    continue
                else:
                    body = self.answer
                writer.write(response_frame(api, version, correlation_id, body))
        except (OSError, asyncio.IncompleteReadError):
            self.closed += 1


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, WITHIN_S))


def peers_of(*brokers: FakeBroker) -> Peers:
    """The brokers by their place in the list, wherever they are at the moment."""
    return Peers(7, lambda id: brokers[id].address if id < len(brokers) else None)


def test_a_question_that_waits_delays_no_other_purpose() -> None:
    async def story() -> None:
        async with FakeBroker() as broker:
            peers = peers_of(broker)
            broker.answer = None
            one = await peers.lane(0, ONE).connection()
            waiting = asyncio.ensure_future(one.relay(*QUESTION))
            await until_async(lambda: broker.ignored == 1, "the question is there")
            broker.answer = b"at once"
            other = await peers.lane(0, OTHER).connection()
            assert await other.relay(*QUESTION) == b"at once"
            assert not waiting.done()
            # The same lane is the same connection, however many ask for it.
            again = await asyncio.gather(*(peers.lane(0, ONE, 1).connection() for _ in range(9)))
            assert len(set(again)) == 1
            assert broker.client_ids == ["one-7", "other-7", "one-7"]
            peers.close()
            with pytest.raises(ConnectionLost):
                await waiting

    run(story())


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_broker_that_registers_anew_is_connected_to_anew(is_elsewhere: bool) -> None:
    async def story() -> None:
        async with FakeBroker() as before, FakeBroker() as after:
            places = {0: before.address}
            peers = Peers(7, places.get)
            lane = peers.lane(0, ONE)
            before.answer = None
            old = await lane.connection()
            waiting = asyncio.ensure_future(old.relay(*QUESTION))
            await asyncio.sleep(0)
            peers.refresh()
            assert old.is_open
            # One that is gone may come back, or its connection ends by itself.
            del places[0]
            peers.refresh()
            assert old.is_open
            places[0] = after.address if is_elsewhere else before.address._replace(epoch=2)
            peers.refresh()
            with pytest.raises(ConnectionLost, match="registered again"):
                await waiting
            new = await lane.connection()
            assert (old.is_open, new.is_open) == (False, True)
            assert len(after.connections) == (1 if is_elsewhere else 0)
            peers.close()

    run(story())


def test_a_broker_that_moves_while_it_is_connected_to_is_not_mistaken() -> None:
    async def story() -> None:
        async with FakeBroker() as before, FakeBroker() as after:
            places = {0: before.address}
            peers = Peers(7, places.get)
            lane = peers.lane(0, ONE)
            connecting = asyncio.ensure_future(lane.connection())
            await until_async(lambda: bool(before.connections), "it is on its way")
            places[0] = after.address
            peers.refresh()
            if not connecting.done():
                with pytest.raises(ConnectionLost, match="registered again"):
                    await connecting
            await lane.connection()
            assert len(after.connections) == 1
            await until_async(lambda: before.closed == 1, "nobody talks to where it was")
            peers.close()

    run(story())


def test_a_refusal_is_told_from_other_failures_and_the_next_attempt_waits() -> None:
    async def story() -> None:
        async with FakeBroker() as broker:
            peers = peers_of(broker)
            broker.hide()
            lane = peers.lane(0, PATIENT)
            with pytest.raises(ConnectionRefused):
                await lane.connection()
            with pytest.raises(ConnectionRefused):
                await peers.probe(0)
            await broker.listen()
            await peers.probe(0)
            waiting = [asyncio.ensure_future(lane.connection()) for _ in range(3)]
            done, _ = await asyncio.wait(waiting, timeout=0.3)
            assert not done
            # Who has registered since is tried at once.
            broker.epoch = 2
            peers.refresh()
            assert len(set(await asyncio.gather(*waiting))) == 1
            with pytest.raises(ConnectionLost, match="not registered") as caught:
                await peers.lane(5, ONE).connection()
            assert not isinstance(caught.value, ConnectionRefused)
            peers.close()

    run(story())


def test_a_broker_that_answers_nothing_for_too_long_is_hung_up_on() -> None:
    async def story() -> None:
        async with FakeBroker() as broker:
            peers = peers_of(broker)
            patience_s = 0.2
            lane = peers.lane(0, ONE, patience_s=lambda: patience_s)
            quiet = await lane.connection()
            # While nothing is asked, silence means nothing.
            await asyncio.sleep(0.5)
            patience_s = 60.0
            assert await quiet.relay(*QUESTION) == b"answer"
            broker.answer, patience_s = None, 0.2
            with pytest.raises(ConnectionLost, match=r"no response within 0\.2 s"):
                await quiet.relay(*QUESTION)
            await quiet.until_closed()
            assert await lane.connection() is not quiet
            peers.close()

    run(story())


def test_a_lane_that_does_not_greet_says_nothing_and_notices_the_end() -> None:
    async def story() -> None:
        async with FakeBroker() as broker:
            peers = peers_of(broker)
            connection = await peers.lane(0, SILENT).connection()
            await until_async(lambda: len(broker.connections) == 1, "it is connected")
            broker.hide()
            await connection.until_closed()
            assert not connection.is_open
            assert broker.client_ids == []

    run(story())


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux gives up so")
def test_a_network_that_loses_everything_in_silence_is_given_up_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aio, "_UNHEARD_MS", 300)

    async def story() -> None:
        async with FakeBroker() as broker:
            peers = peers_of(broker)
            lane = peers.lane(0, ONE)
            before = await lane.connection()
            lose_all(broker.connections[0].get_extra_info("socket"))
            with pytest.raises(ConnectionLost):
                await before.relay(*QUESTION)
            after = await lane.connection()
            assert after is not before
            assert await after.relay(*QUESTION) == b"answer"
            peers.close()

    run(story())


def lose_all(connected: socket.socket) -> None:
    """Have the kernel drop whatever arrives for a socket, without a word to the other side."""
    drop = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    program = struct.pack("HP", 1, ctypes.addressof(drop))
    connected.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
