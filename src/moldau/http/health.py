"""Health: whether a broker lives, and whether it serves.

    /healthz   200 while the event loop is running: the answer itself is the proof
    /readyz    200 while the broker is registered and holds all its partitions, else 503

Each answer says why in JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from moldau.http.answers import json
from moldau.http.host import Host

if TYPE_CHECKING:
    from moldau.broker.server import Broker


def routes(host: Host) -> list[Route]:
    """Return the two routes."""
    broker = host.broker

    async def healthz(request: Request) -> Response:
        stalls = broker.stalls
        return json(
            {
                "status": "ok",
                "reason": "the event loop is running",
                "broker": broker.id,
                "longest_stall_ms": round(stalls.longest_s * 1000),
            }
        )

    async def readyz(request: Request) -> Response:
        reason = unready_reason(broker)
        partitions = len(broker.partitions)
        content = {
            "status": "ok" if reason is None else "unavailable",
            "reason": reason or f"registered, with {partitions} partitions",
            "broker": broker.id,
            "partitions": partitions,
        }
        return json(content, 200 if reason is None else 503)

    return [Route("/healthz", healthz), Route("/readyz", readyz)]


def unready_reason(broker: Broker) -> str | None:
    """Return why the broker does not serve as it should; None if it does."""
    if broker.phase != "serving":
        return f"the broker is {broker.phase}"
    if broker.replicas.is_fenced:
        return "out of touch with the cluster: this broker leads nothing until it is back"
    if broker.replicas.incomplete:
        # Anybody may ask, so that topics have no names here; the log has them.
        return f"the disk refuses partitions of {len(broker.replicas.incomplete)} topics"
    return None
