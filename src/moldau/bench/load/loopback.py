"""Loopback: how many bytes per second this machine moves between two processes over TCP."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

from moldau.bench.tasks import ByteFlow, Loopback

# Large enough that both sides seldom wait for each other; with less, wake-ups are the limit.
CHUNK = 1 << 20
_RECEIVE = f"""
import socket, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
buffer = bytearray({CHUNK})
while sock.recv_into(buffer):
    pass
"""


def loopback(task: Loopback) -> ByteFlow:
    chunk = bytes(CHUNK)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        receiver = subprocess.Popen([sys.executable, "-c", _RECEIVE, str(port)])
        sock, _ = listener.accept()
    try:
        with sock:
            warm = time.monotonic() + min(0.2, task.seconds)
            while time.monotonic() < warm:
                sock.sendall(chunk)
            sent, started = 0, time.monotonic()
            while time.monotonic() < started + task.seconds:
                sock.sendall(chunk)
                sent += CHUNK
            return ByteFlow(sent / (time.monotonic() - started))
    finally:
        receiver.wait()
