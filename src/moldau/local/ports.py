"""Free ports that stay ours over restarts."""

from __future__ import annotations

import random
import socket

HOST = "127.0.0.1"

# Below the range that systems take outgoing connections from: a client that keeps on trying the
# port of a stopped server must never meet itself there.
PORTS = range(15_000, 30_000)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on, all different."""
    taken: list[socket.socket] = []
    try:
        for port in random.sample(PORTS, len(PORTS)):
            candidate = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                candidate.bind((HOST, port))
            except OSError:
                candidate.close()
                continue
            taken.append(candidate)
            if len(taken) == count:
                return [each.getsockname()[1] for each in taken]
    finally:
        for each in taken:
            each.close()
    raise OSError(f"fewer than {count} ports are free from {PORTS.start} to {PORTS.stop}")
