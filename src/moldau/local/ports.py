"""Free ports that stay ours over restarts."""

from __future__ import annotations

import random
import socket
from collections import deque

HOST = "127.0.0.1"

# Below the range that systems take outgoing connections from: a client that keeps on trying the
# port of a stopped server must never meet itself there.
PORTS = range(15_000, 30_000)

# A claim on a port is a UDP socket of the same number, which the system takes back when the process
# ends. Without it the port of a broker that is down for a moment would be free for the cluster of
# another process, and clients of the first would find themselves in the second. A process that
# starts one cluster after another gives up its oldest claims first.
_MOST_CLAIMS = 256
_claims: deque[socket.socket] = deque()


def free_ports(count: int) -> list[int]:
    """Claim ports of 127.0.0.1 that nobody listens on, all different; they stay claimed against
    other callers of this function, in any process, while this one lives."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if (claim := _claimed(port)) is None:
            continue
        _claims.append(claim)
        if len(_claims) > _MOST_CLAIMS:
            _claims.popleft().close()
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"fewer than {count} ports are free from {PORTS.start} to {PORTS.stop}")


def _claimed(port: int) -> socket.socket | None:
    claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        claim.bind((HOST, port))
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((HOST, port))
    except OSError:
        claim.close()
        return None
    return claim
