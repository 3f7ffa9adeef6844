"""Word to systemd about a broker that it supervises (`Type=notify`)."""

from __future__ import annotations

import logging
import os
import socket

logger = logging.getLogger("moldau.broker")


def notify(state: str) -> None:
    """Send a line such as READY=1 to who started this process and asked for it; see sd_notify(3).

    A supervisor that cannot be reached is no reason not to serve.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    # A name that begins with @ is one of Linux's abstract ones.
    name = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.connect(name)
            out.sendall(state.encode())
    except OSError as problem:
        logger.warning("could not send %s to systemd at %s: %s", state, address, problem)
