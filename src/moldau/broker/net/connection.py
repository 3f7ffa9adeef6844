"""Connections: frames in, requests handled where they arrived, answers out in order.

A connection only has its parts work together:

    input      the bytes that were received, in one lasting buffer
    frames     where a request begins and ends in them
    responses  the order of the answers, and what they take
    reading    why it is not read from
    output     what it still has to send

All frames of one receive are handled in turn, or as many as a slice of time allows (`turns`); what
they append is then written with one call per log, and all answers leave in one send.

A request may be answered later (a long poll, a write that waits for its replicas). The ones after
it on the same connection are handled meanwhile, but their answers wait: Kafka's clients match
answers to requests by their order. Event loop only.

In a cluster a broker answers as a leader only while its lease lasts (`moldau.cluster.lease`): later
requests find it leading nothing, and later answers are dropped with their connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Any

from moldau.broker.net.connections import Connections
from moldau.broker.net.context import Context, context_of
from moldau.broker.net.doors.login import Login
from moldau.broker.net.frames import PREFIX, end_of_frame, first_frame
from moldau.broker.net.input import BUSY, Input
from moldau.broker.net.listener import Door, Listener
from moldau.broker.net.outputs.output import Output
from moldau.broker.net.outputs.pacing import send_unpaced_at_home
from moldau.broker.net.reading import (
    AWAITS_MEMORY,
    AWAITS_TURN,
    AWAITS_WORK_ASIDE,
    BACKED_UP,
    ENDED,
    Reading,
)
from moldau.broker.net.request import AskAnotherBroker
from moldau.broker.net.responses import Response, Responses
from moldau.broker.net.turns import SLICE_S
from moldau.broker.security.principal import shortened
from moldau.cluster.clock import now
from moldau.wire.primitives import Endpoint, MalformedRequest

logger = logging.getLogger("moldau.broker")

Aside = Callable[[memoryview], Awaitable[Any]]

# The most that one connection is answered in a turn, but for a single answer that is larger.
_MOST_IN_TURN = 128 << 10


class Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    __slots__ = (
        "_all", "_aside", "_beat", "_commit", "_enter", "_lease", "_limit", "_listener", "_loop",
        "_output", "_reading", "_responses", "_transport", "active_at", "answer", "client_id",
        "client_name", "context", "exit", "hold", "input", "login", "prepared", "received_at",
        "receiving_since", "reserve", "staged",
    )  # fmt: skip

    def __init__(self, connections: Connections[Any], listener: Listener) -> None:
        self._all = connections
        self._enter = connections.enter
        self._commit = connections.commit
        self.exit = connections.exit
        self._listener = listener
        self.context = Context(listener.name, "", 0, "?", 0)
        self._loop = connections.node.loop
        self._lease = connections.node.store.lease
        self._beat = connections.beat
        self.input = Input(connections.request_memory)
        self._aside: Aside | None = None
        # What work aside has found for the first request, or None; then `end` is called.
        self.prepared: Any = None
        # The appends that the next `commit` writes.
        self.staged: list[Any] = []
        # The client's name for itself, as sent and as text.
        self.client_name = b""
        self.client_id = ""
        # How far the client has proved who it is; None where it need not by SASL.
        self.login: Login | None = None
        # The largest request meanwhile; 0 is that of all others.
        self._limit = 0
        # When what is being handled had come (`time.monotonic`).
        self.received_at = 0.0
        # When bytes came last, and since when the unfinished request is coming.
        self.active_at = self.receiving_since = self._loop.time()

    # -- asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        try:
            self._output: Output = self._listener.output(
                self._loop, transport, self._drained, self._send_failed
            )
        except OSError as reason:
            logger.warning("refusing a connection: %s", reason)
            transport.set_protocol(asyncio.Protocol())
            transport.close()
            return
        listener = self._listener
        self.context = context_of(transport, listener.name, listener.is_inter_broker)
        send_unpaced_at_home(transport)
        self._reading = Reading(transport, self._go_on)
        self._responses = Responses(self._output, partial(self._reading.block, BACKED_UP))
        self.answer = self._responses.answer
        self.reserve = self._responses.reserve
        self.hold = self._responses.hold
        self._output.begin()
        # An acceptor has counted it before the handshake.
        is_let_in = self._all.register(self, is_counted=listener.acceptor is not None)
        if is_let_in and listener.door is not None:
            self._enter_by(listener.door)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.input.room()

    def buffer_updated(self, nbytes: int) -> None:
        received = self.input
        filled = received.filled + nbytes
        received.filled = filled
        self.active_at = self._loop.time()
        if filled == nbytes:
            self.receiving_since = self.active_at
        if self._beat.is_idle:
            self._beat.rouse()
        if filled >= received.awaited:
            self._process()
        elif received.needed > BUSY:
            # Its pages are new, which takes the kernel long: one receive is enough for a turn.
            self._await_turn()

    def pause_writing(self) -> None:
        self._output.pause_writing()

    def resume_writing(self) -> None:
        self._output.resume_writing()

    def eof_received(self) -> bool:
        # A client may close its sending half and still read the answers to what it sent. We cannot
        # know whether anybody still reads, so nothing is left waiting for news.
        self._responses.release_long_polls()
        self._reading.end()
        return not self._is_drained

    def connection_lost(self, exc: Exception | None) -> None:
        if self.login is not None:
            self.login.stop()
        self._reading.end()
        self._output.close()
        self._responses.abandon()
        self._all.unregister(self)
        if not self._reading.blocked & AWAITS_WORK_ASIDE:
            # Callbacks refer to the connection and it to them: the collector may take its time.
            self.input.drop()

    def _enter_by(self, door: Door) -> None:
        try:
            self.context.become(door.principal_of(self._transport))
        except ValueError as reason:
            self.close(str(reason))
            return
        if door.sasl is not None:
            self.login = Login(self, self._all, door.sasl)

    def gate(self, enter: Callable[[Any, memoryview], None], limit: int) -> None:
        """Handle requests by this function from now on, none larger than that; 0 is any."""
        self._enter = enter
        self._limit = limit

    # -- answers; `answer`, `reserve` and `hold` are those of `Responses`

    def respond(self, response: Response, parts: list[Any]) -> None:
        """Set the answer for a place, and send it when those before it are there."""
        lease = self._lease
        if lease is not None and now() >= lease.ends_at:
            self._drop_answers()
            lease.expire()
            return
        response.parts = parts
        self._responses.settle()
        self._output.flush()
        self._all.answered_late(response)
        if self._reading.blocked:
            self._look_again()

    def fenced(self) -> None:
        """Note that this broker no longer leads: a waiting answer may say that it does."""
        if self._responses.any_known:
            self._drop_answers()

    def _drop_answers(self) -> None:
        self._output.close()
        self.finish()

    @property
    def cold_reads(self) -> int:
        return self._output.cold_reads

    def endpoints(self) -> list[Endpoint]:
        """Return where this client reaches the brokers, for an answer that names a leader."""
        return self._all.endpoints(self.context.listener)

    # -- the end

    def close(self, reason: str) -> None:
        """End the connection at once and log why, once for many of a kind."""
        if self._all.hangups.note(self.context.client_host, reason):
            client, name = self.context.client, shortened(self.client_id)
            logger.warning("closing connection from %s (client %r): %s", client, name, reason)
        self.finish()

    def fail(self, error: Exception, what: str) -> None:
        """End the connection because of a bug, and log its stack, once for many."""
        if self._all.hangups.note(self.context.client_host, f"{what} failed: {error!r}"):
            logger.error("%s from %s failed", what, self.context.client, exc_info=error)
        self.finish()

    def finish(self) -> None:
        """End the connection at once, silently."""
        self._reading.end()
        self._transport.abort()

    def wind_down(self) -> None:
        """Accept no more requests, answer those in flight, then end: the broker is stopping."""
        if not self._transport.is_closing():
            self._reading.block(BACKED_UP)
        self._responses.release_long_polls()
        self._reading.end()
        self._close_if_drained()

    @property
    def _is_drained(self) -> bool:
        is_aside = self._reading.blocked & AWAITS_WORK_ASIDE
        return not (self._responses or self._output.backed_up or is_aside)

    def _close_if_drained(self) -> None:
        if self._is_drained:
            self._transport.close()

    # -- requests

    def _go_on(self) -> None:
        if self.input.filled >= max(self.input.awaited, 1):
            self._process()

    def _process(self, is_due: bool = False) -> None:
        """Handle what has arrived, unless it is blocked; only the first request if it `is_due`."""
        lease = self._lease
        if lease is not None and now() >= lease.ends_at:
            lease.expire()
        received, reading, responses = self.input, self._reading, self._responses
        view, start = received.view, 0
        filled = 0 if reading.blocked and not is_due else received.filled
        limit = self._limit or self._all.node.settings.socket_request_max_bytes
        needed = 0
        failed = False
        enter = self._enter
        self.received_at = now_s = monotonic()
        end_of_slice = now_s + SLICE_S
        try:
            while filled - start >= PREFIX:
                if start and (monotonic() > end_of_slice or responses.unsent > _MOST_IN_TURN):
                    self._await_turn()
                    break
                end = end_of_frame(view, start, limit)
                if end > filled:
                    needed = end - start
                    break
                enter(self, view[start + PREFIX : end])
                if reading.blocked:
                    # A request that was put aside stays at the front.
                    start = start if self._aside is not None else end
                    break
                start = end
        except (MalformedRequest, AskAnotherBroker) as reason:
            self.close(str(reason))
        except Exception as error:
            self.fail(error, "a request")
            failed = True
        # The buffer also holds what a failed request staged, which must not be written later.
        if self.staged or failed:
            self.commit()
        if lease is not None and now() >= lease.ends_at:
            self._drop_answers()
            lease.expire()
        responses.settle()
        self._output.flush()
        if (metrics := self.exit.metrics) is not None and (metrics.writes or metrics.left):
            metrics.end_turn(now_s)
        if (spent := self.exit.spent) is not None:
            spent(self.context, self.client_id, now_s, monotonic())
        if self._output.backed_up:
            reading.block(BACKED_UP)
        elif responses.unsent:
            responses.count_sent()
        if start:
            self.receiving_since = self.active_at
        if not reading.blocked & ENDED and not received.take_off(start, needed):
            reading.block(AWAITS_MEMORY)
            self._all.request_memory.wait(self, self._loop)
        if reading.blocked:
            if self._aside is not None and not is_due:
                if reading.blocked & ENDED:
                    reading.unblock(AWAITS_WORK_ASIDE)
                else:
                    # The request has reached the place where it stays until that is done.
                    self._all.node.spawn(self._do_aside())
            self._look_again()

    def commit(self) -> None:
        """Write what has been staged so far."""
        staged, self.staged = self.staged, []
        self._commit(staged)
        if (metrics := self.exit.metrics) is not None:
            metrics.writes += len(staged)

    def rename(self, name: memoryview) -> None:
        """Note the client's name for itself."""
        self.client_name = bytes(name)
        self.client_id = str(name, "utf-8", "replace")

    def put_aside(self, work: Aside) -> None:
        """Do `work` on the current request, then handle it again before any other."""
        self._aside = work
        self._reading.block(AWAITS_WORK_ASIDE)

    async def _do_aside(self) -> None:
        """Do what was put aside, and handles its request; only then is the buffer let go of."""
        try:
            while self._aside is not None:
                work, self._aside = self._aside, None
                prepared = self.prepared = await work(first_frame(self.input.view))
                try:
                    # It arrived complete, so it is handled even if nobody is left to get the
                    # answer.
                    self._process(is_due=True)
                finally:
                    self.prepared = None
                    if prepared is not None:
                        prepared.end()
        except Exception as error:
            self.fail(error, "a request")
        finally:
            self._reading.unblock(AWAITS_WORK_ASIDE)
            if self not in self._all:
                self.connection_lost(None)
            elif self._reading.blocked & ENDED:
                self._close_if_drained()

    # -- back-pressure

    def _await_turn(self) -> None:
        self._reading.block(AWAITS_TURN)
        self._all.turns.wait(self)

    def take_turn(self) -> None:
        self._reading.unblock(AWAITS_TURN)

    def mute(self, seconds: float) -> None:
        """Read nothing for a while: the client has used up what it may do (KIP-219)."""
        self._reading.mute(self._loop, seconds)

    def take_memory(self) -> None:
        self._reading.unblock(AWAITS_MEMORY)

    def _look_again(self) -> None:
        """Check whether it is still blocked, after waiting answers have been sent."""
        blocked = self._reading.blocked
        if blocked & ENDED:
            self._close_if_drained()
        elif blocked & BACKED_UP and not (self._output.backed_up or self._responses.are_many):
            self._loop.call_soon(self._drained)

    def _drained(self) -> None:
        """The peer took what it was sent: goes on with what it asked meanwhile."""
        if self._output.backed_up or self._responses.are_many:
            return
        self._responses.count_sent()
        blocked = self._reading.blocked
        if blocked & ENDED:
            self._close_if_drained()
        elif blocked & BACKED_UP and not self._responses.is_full:
            self._reading.unblock(BACKED_UP)

    def _send_failed(self, reason: OSError) -> None:
        logger.debug("sending to %s failed: %s", self.context.client, reason)
        self.finish()
