"""Throttling: every answer is charged to who asked, and who asked too much is not read from."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Any

from moldau.broker.net.connections import Connections
from moldau.broker.net.context import Context
from moldau.broker.net.responses import Response
from moldau.broker.security.quotas import Meter, Quotas
from moldau.cluster.state.access import AccessDamaged, QuotasChanged
from moldau.cluster.state.changes import AnyChange
from moldau.wire.apis import Api
from moldau.wire.quotas import CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE

_PRODUCE, _FETCH, _SHARE_FETCH = int(Api.PRODUCE), int(Api.FETCH), int(Api.SHARE_FETCH)
# Requests between brokers, whose rates have limits of their own.
EXEMPT = frozenset((Api.ENVELOPE, Api.WRITE_TXN_MARKERS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE))


class Throttling:
    """The quotas of requests, for all connections and their exit. Event loop only.

    While nobody has a limit, nobody is asked: `exit.throttle` and `exit.spent` are None.
    """

    def __init__(self, quotas: Quotas, connections: Connections[Any]) -> None:
        self.quotas = quotas
        self._exit = connections.exit
        self._apply_limits()

    def apply(self, changes: Sequence[AnyChange]) -> None:
        """Take in limits that have changed."""
        if any(isinstance(change, (QuotasChanged, AccessDamaged)) for change in changes):
            self.quotas.limits_changed()
            self._apply_limits()

    def _apply_limits(self) -> None:
        names = self.quotas.names
        self._exit.throttle = self._throttle if names else None
        self._exit.spent = self._spent if REQUEST_PERCENTAGE in names else None

    def _spent(self, context: Context, client: str, began: float, ended: float) -> None:
        """Charge the time of the loop that the requests of one turn took, or a step of one."""
        time = None if context.is_broker else self._meter(context, client).time
        if time is not None:
            time.spend((ended - began) * 100, ended)

    def _meter(self, context: Context, client: str) -> Meter:
        found: Meter | None = context.meter
        if found is None or found.term is not self.quotas.term or found.client != client:
            found = context.meter = self.quotas.meter(context.principal, client)
        return found

    def _throttle(self, response: Response) -> int:
        """Return how many milliseconds who asked has to wait, and stop reading from them."""
        request = response.request
        context, client = request.context, request.client_id
        if context.is_broker:
            return 0
        meter: Meter | None = context.meter
        # Like `_meter`, which would be one more call for every write.
        if meter is None or meter.term is not self.quotas.term or meter.client is not client:
            meter = self._meter(context, client)
        api, time, writes = request.api, meter.time, meter.writes
        wait_s = 0.0
        if api == _PRODUCE:
            if writes is not None:
                # Like `spend`, for the same reason, and by the time at which the turn began.
                left = writes.allowance - request.size
                if left >= 0.0 and request.received_at < writes.fresh_until:
                    writes.allowance = left
                else:
                    wait_s = writes.spend(request.size, monotonic())
        elif api == _FETCH:
            wait_s = self._throttle_fetch(response, meter.principal.name, client)
        elif api == _SHARE_FETCH:
            # It is answered with its records, which nobody else is given meanwhile.
            user, volume = meter.principal.name, response.volume
            wait_s = self.quotas.spend(CONSUMER_BYTE_RATE, user, client, volume)
        elif api in EXEMPT:
            return 0
        else:
            wait_s = response.throttle_ms / 1000
        if time is not None and time.allowance < 0.0:
            # No longer than a window, as in Kafka: what took long once does not bar for minutes.
            wait_s = max(wait_s, min(time.wait_s(monotonic()), self.quotas.window_s))
        if wait_s <= 0.0:
            return 0
        response.mute(wait_s)
        throttle_ms = max(1, int(wait_s * 1000))
        self._exit.throttled_ms += throttle_ms
        return throttle_ms

    def _throttle_fetch(self, response: Response, user: str, client: str) -> float:
        volume = response.volume
        wait_s = self.quotas.spend(CONSUMER_BYTE_RATE, user, client, volume)
        if wait_s > 0 and volume:
            # It is answered with nothing, which has not to be paid for.
            self.quotas.spend(CONSUMER_BYTE_RATE, user, client, -volume)
            response.withhold()
        return wait_s
