"""TLS without a broker: what OpenSSL moves between two processes of this machine.

Python's own ssl over blocking sockets, with the cipher that a broker and its clients agree on: one
process encrypts and the other decrypts, each on a core of its own.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import time

from bench.tasks import TlsLoopback
from moldau.bench.errors import BenchFailed
from moldau.bench.tasks import ByteFlow

_ACCEPT_WITHIN_S = 30.0
# As much as a broker hands to OpenSSL at once.
_CHUNK = 256 << 10
_RECEIVE = f"""
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[2])
plain = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
encrypted = context.wrap_socket(plain, server_hostname="127.0.0.1")
buffer = bytearray({_CHUNK})
try:
    while encrypted.recv_into(buffer):
        pass
except OSError:
    pass
"""


def tls_loopback(task: TlsLoopback) -> ByteFlow:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(task.keystore)
    chunk = bytes(_CHUNK)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        words = [sys.executable, "-c", _RECEIVE, str(port), task.trusted]
        receiver = subprocess.Popen(words)
        listener.settimeout(_ACCEPT_WITHIN_S)
        try:
            plain, _ = listener.accept()
        except TimeoutError:
            receiver.kill()
            raise BenchFailed("the receiver of the encrypted loopback did not connect") from None
    plain.settimeout(_ACCEPT_WITHIN_S)
    try:
        with context.wrap_socket(plain, server_side=True) as encrypted:
            warm = time.monotonic() + min(0.3, task.seconds)
            while time.monotonic() < warm:
                encrypted.sendall(chunk)
            sent, started = 0, time.monotonic()
            while time.monotonic() < started + task.seconds:
                encrypted.sendall(chunk)
                sent += _CHUNK
            return ByteFlow(sent / (time.monotonic() - started))
    finally:
        receiver.kill()
        receiver.wait()
