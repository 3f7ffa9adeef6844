"""Pacing: how the kernel spreads what a socket sends over time."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

_CONGESTION: int | None = getattr(socket, "TCP_CONGESTION", None)
# The one algorithm that every Linux has and lets everybody choose.
_UNPACED = b"reno"


def send_unpaced(sock: socket.socket) -> None:
    """Have the kernel send as fast as it is read; for a peer on this machine.

    Where BBR is the default, it paces even there: a timer for every 64 KB, which is more than half
    of what sending costs. Between machines the choice stays the system's.
    """
    if _CONGESTION is not None:
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, _CONGESTION, _UNPACED)


def send_unpaced_at_home(transport: asyncio.BaseTransport) -> None:
    """Send unpaced over this transport if its peer is on this machine."""
    peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if peer and local and peer[0] == local[0]:
        send_unpaced(transport.get_extra_info("socket"))
