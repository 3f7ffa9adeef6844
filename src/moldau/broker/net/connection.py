"""One client connection: frames in, requests handled where they arrived, answers out in order.

Bytes land in one lasting buffer per connection. All frames of one receive are handled in turn, or
as many as a slice of time allows (`turns`); what they append is then written with one call per log,
and all answers leave in one send.

A request may be answered later (a long poll, a write that waits for its replicas). The ones after
it on the same connection are handled meanwhile, but their answers wait: Kafka's clients match
answers to requests by their order. Event loop only.

In a cluster a broker answers as a leader only while its lease lasts: see `moldau.cluster.lease`.
Requests that come later find it leading nothing; answers that are later are dropped with their
connection, and clients ask again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from moldau.broker.net.context import Context
from moldau.broker.net.input import BUSY, Input
from moldau.broker.net.output import Output
from moldau.broker.net.pacing import send_unpaced_at_home
from moldau.broker.net.responses import LongPoll, Response
from moldau.broker.net.turns import SLICE_S
from moldau.cluster.clock import now
from moldau.wire.primitives import INT32, Endpoint, MalformedRequest

if TYPE_CHECKING:
    from moldau.broker.api.records.produce import ProduceResponse
    from moldau.broker.net.listener import Listener
    from moldau.broker.server import Broker

logger = logging.getLogger("moldau.broker")

Aside = Callable[[memoryview], Awaitable[Any]]

# Answers that may be under way before no further request of the connection is read, and the bytes
# that they may take, with the requests that they belong to.
_MOST_RESPONSES = 4096
_MOST_HELD = 4 << 20
# Of bytes that are in the log already, one in so many is counted.
_WRITTEN_COUNTS = 4
# Why a connection is not read from, as bits.
_BACKED_UP = 1
_AWAITS_TURN = 2
_AWAITS_MEMORY = 4
_AWAITS_WORK_ASIDE = 8
# The most that one connection is answered in a turn, but for a single answer that is larger.
_MOST_IN_TURN = 128 << 10


class Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    __slots__ = (
        "_aside", "_blocked", "_broker", "_closing", "_enter", "_held", "_lease", "_listener",
        "_loop", "_output", "_responses", "_stalls", "_transport", "_unsent", "active_at",
        "client_id", "client_name", "context", "exit", "input", "prepared", "received_at",
        "receiving_since", "staged",
    )  # fmt: skip

    def __init__(self, broker: Broker, listener: Listener) -> None:
        self._broker = broker
        self._enter = broker.entrance.handle
        self.exit = broker.exit
        self._listener = listener
        self.context = Context(listener.name, "", 0, "?", 0)
        self._loop = broker.loop
        self._lease = broker.store.lease
        self._stalls = broker.stalls
        self.input = Input(broker.request_memory)
        self._responses: deque[Response] = deque()
        # Bytes of requests and answers that wait; of those, what the output has been given.
        self._held = 0
        self._unsent = 0
        self._blocked = 0
        self._aside: Aside | None = None
        # What the work that was done aside has found for the request at the front.
        self.prepared: Any = None
        self._closing = False
        self.staged: list[ProduceResponse] = []
        # What the client calls itself, as it is sent and as text.
        self.client_name = b""
        self.client_id = ""
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
        local = transport.get_extra_info("sockname")
        client = transport.get_extra_info("peername") or ("?", 0)
        self.context = Context(self._listener.name, *local[:2], *client[:2])
        send_unpaced_at_home(transport)
        if not self._broker.register(self):
            self.close("there are as many connections as max.connections or the system allow")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.input.room()

    def buffer_updated(self, nbytes: int) -> None:
        received = self.input
        filled = received.filled + nbytes
        received.filled = filled
        self.active_at = self._loop.time()
        if filled == nbytes:
            self.receiving_since = self.active_at
        if self._stalls.is_idle:
            self._stalls.rouse()
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
        # A client may close its sending half and still read the answers to what it sent. Whether
        # anybody reads is not to be told, so nothing is left waiting for news.
        self.release_long_polls()
        self._closing = True
        return not self.is_drained

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._output.close()
        responses, self._responses = self._responses, deque()
        for response in responses:
            response.abandon()
        self._broker.unregister(self)
        # Callbacks refer to the connection and it to them: the collector may take its time.
        self.input.drop()

    # -- answers

    def reserve(self, response: Response, held: int = 0) -> None:
        """Takes the next place in the order of answers; `held` bytes are kept until it is given."""
        response.held = held
        self._held += held
        self._responses.append(response)

    def hold(self, response: Response, held: int) -> None:
        """Counts bytes of an answer that has to wait after all.

        A writer whose replicas cannot keep up is read from no further: otherwise it would put the
        leader ever further ahead of them. What it wrote takes no memory, so it may be more.
        """
        held //= _WRITTEN_COUNTS
        response.held += held
        self._held += held
        if self._held > _MOST_HELD:
            self._block(_BACKED_UP)

    def respond(self, response: Response, parts: list[Any]) -> None:
        """Gives the answer for a place, and sends it once those before it are there."""
        lease = self._lease
        if lease is not None and now() >= lease.ends_at:
            self._drop_answers()
            lease.expire()
            return
        response.parts = parts
        self._settle()
        self._output.flush()
        if self._closing and self.is_drained:
            self._transport.close()

    def fenced(self) -> None:
        """This broker leads no more: an answer that waits for its turn may say that it does."""
        if any(response.parts is not None for response in self._responses):
            self._drop_answers()

    def _drop_answers(self) -> None:
        self._output.close()
        self.finish()

    def endpoints(self) -> list[Endpoint]:
        """Where this client reaches the brokers, for an answer that names a leader."""
        return self._broker.endpoints(self.context.listener)

    def _settle(self) -> None:
        responses = self._responses
        put = self._output.put
        while responses and responses[0].parts is not None:
            response = responses.popleft()
            self._held -= response.held
            for part in response.parts:  # type: ignore[union-attr]
                put(part)
        if self._blocked & _BACKED_UP and not (
            self._output.backed_up or len(responses) >= _MOST_RESPONSES
        ):
            self._loop.call_soon(self._drained)

    def close(self, reason: str) -> None:
        """Ends the connection at once and says why in the log, once for many that are alike."""
        if self._broker.hangups.note(self.context.client_host, reason):
            logger.warning(
                "closing connection from %s (client %r): %s",
                self.context.client,
                self.client_id,
                reason,
            )
        self.finish()

    def fail(self, error: Exception, what: str) -> None:
        """Ends the connection because of a bug, whose stack is told once for many."""
        if self._broker.hangups.note(self.context.client_host, f"{what} failed: {error!r}"):
            logger.error("%s from %s failed", what, self.context.client, exc_info=error)
        self.finish()

    def finish(self) -> None:
        """Ends the connection at once, without a word."""
        self._closing = True
        self._transport.abort()

    @property
    def is_drained(self) -> bool:
        return not self._responses and not self._output.backed_up

    def wind_down(self) -> None:
        """Takes no further request, answers those under way, then ends: the broker stops."""
        if not self._transport.is_closing():
            self._block(_BACKED_UP)
        self.release_long_polls()
        self._closing = True
        if self.is_drained:
            self._transport.close()

    def release_long_polls(self) -> None:
        """Answers what is only waiting for news."""
        for response in list(self._responses):
            if isinstance(response, LongPoll) and response.parts is None:
                response.complete()

    # -- requests

    def _process(self) -> None:
        lease = self._lease
        if lease is not None and now() >= lease.ends_at:
            lease.expire()
        received = self.input
        view, start = received.view, 0
        filled = received.filled if self._may_read() else 0
        limit = self._broker.settings.socket_request_max_bytes
        needed = 0
        failed = False
        enter = self._enter
        self.received_at = now_s = monotonic()
        end_of_slice = now_s + SLICE_S
        try:
            while filled - start >= 4:
                if start and (monotonic() > end_of_slice or self._unsent > _MOST_IN_TURN):
                    self._await_turn()
                    break
                (size,) = INT32.unpack_from(view, start)
                if not 0 < size <= limit:
                    raise MalformedRequest(f"a request claims {size} bytes (at most {limit})")
                end = start + 4 + size
                if end > filled:
                    needed = 4 + size
                    break
                enter(self, view[start + 4 : end])
                if self._blocked or self._closing:
                    # What was put aside stays at the front.
                    start = start if self._aside is not None else end
                    break
                start = end
                if len(self._responses) >= _MOST_RESPONSES or self._held > _MOST_HELD:
                    self._block(_BACKED_UP)
                    break
        except MalformedRequest as reason:
            self.close(str(reason))
        except Exception as error:
            self.fail(error, "a request")
            failed = True
        # What a failed request had staged lies in the buffer too, and must not be written later.
        if self.staged or failed:
            self.commit()
        if lease is not None and now() >= lease.ends_at:
            self._drop_answers()
            lease.expire()
        self._settle()
        self._output.flush()
        if self._output.backed_up:
            self._block(_BACKED_UP)
        else:
            self._held -= self._unsent
            self._unsent = 0
        if start:
            self.receiving_since = self.active_at
        if not self._closing and not received.take_off(start, needed):
            self._block(_AWAITS_MEMORY)
            self._broker.request_memory.wait(self, self._loop)
        if self._aside is not None and not self._closing:
            # Only now does the request lie where it stays until that is done.
            self._broker.spawn(self._do_aside(self._aside))
            self._aside = None

    def commit(self) -> None:
        """Has written what was staged so far."""
        staged, self.staged = self.staged, []
        self._broker.commit(staged)

    def rename(self, name: memoryview) -> None:
        """Takes note of what the client calls itself."""
        self.client_name = bytes(name)
        self.client_id = str(name, "utf-8", "replace")

    def put_aside(self, work: Aside) -> None:
        """Has `work` done on the request at hand, and then handles it anew, before any other."""
        self._aside = work
        self._block(_AWAITS_WORK_ASIDE)

    async def _do_aside(self, work: Aside) -> None:
        (size,) = INT32.unpack_from(self.input.view)
        try:
            self.prepared = await work(self.input.view[4 : 4 + size])
        except Exception as error:
            self.fail(error, "a request")
        else:
            self._unblock(_AWAITS_WORK_ASIDE)

    def answer(self, response: Response, frame: bytes) -> None:
        """Gives the answer to the request at hand."""
        if self._responses:
            response.parts = [frame]
            self.reserve(response, len(frame))
        else:
            self._held += len(frame)
            self._unsent += len(frame)
            self._output.put(frame)

    # -- back-pressure

    def _block(self, why: int) -> None:
        """Reads nothing more, and handles nothing more, until `_unblock`."""
        if not self._closing:
            if not self._blocked:
                self._transport.pause_reading()
            self._blocked |= why

    def _unblock(self, why: int) -> None:
        """Goes on with what has arrived, and reads on, unless there is another reason not to."""
        self._blocked &= ~why
        if self._may_read() and self.input.filled >= max(self.input.awaited, 1):
            self._process()
        if self._may_read():
            self._transport.resume_reading()

    def _may_read(self) -> bool:
        return not self._blocked and not self._closing

    def _await_turn(self) -> None:
        self._block(_AWAITS_TURN)
        self._broker.turns.wait(self)

    def take_turn(self) -> None:
        self._unblock(_AWAITS_TURN)

    def take_memory(self) -> None:
        self._unblock(_AWAITS_MEMORY)

    def _drained(self) -> None:
        """The peer took what it was sent: goes on with what it asked meanwhile."""
        if self._output.backed_up or len(self._responses) >= _MOST_RESPONSES:
            return
        self._held -= self._unsent
        self._unsent = 0
        if self._closing:
            if self.is_drained:
                self._transport.close()
            return
        if self._blocked & _BACKED_UP and self._held <= _MOST_HELD:
            self._unblock(_BACKED_UP)

    def _send_failed(self, reason: OSError) -> None:
        logger.debug("sending to %s failed: %s", self.context.client, reason)
        self.finish()
