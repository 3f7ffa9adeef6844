"""The ports of a cluster on this machine."""

from __future__ import annotations

import contextlib
import socket

import typer

from moldau.cli.views.output import Failure

HOST = "127.0.0.1"
# Where clients look for a schema registry, if they are told no other port.
_FIRST_HTTP_PORT = 8081


def cluster_ports(brokers: int, first: int, first_http: int | None) -> tuple[list[int], list[int]]:
    """Return the brokers' ports and those for HTTP, each of them free at this moment.

    Where nobody chose those for HTTP and the usual ones are taken, free ones do: they are printed
    anyway.
    """
    some = _free(2 * brokers)
    kafka = some[:brokers] if first == 0 else _in_a_row(brokers, first, "--port")
    http = [port for port in some if port not in kafka][:brokers]
    if first_http:
        http = _in_a_row(brokers, first_http, "--http-port")
    elif first_http is None and first:
        with contextlib.suppress(Failure):
            http = _in_a_row(brokers, _FIRST_HTTP_PORT, "--http-port")
    return kafka, http


def _free(count: int) -> list[int]:
    from moldau.local.ports import free_ports

    return free_ports(count)


def _in_a_row(count: int, first: int, flag: str) -> list[int]:
    if first + count > 65_536:
        raise typer.BadParameter(f"{count} ports from {first} on do not exist", param_hint=flag)
    for port in range(first, first + count):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as problem:
                raise Failure(
                    f"{HOST}:{port} cannot be used: {(problem.strerror or str(problem)).lower()}",
                    f"stop the process that uses it, or choose other ports with {flag} "
                    "P (0 takes free ports)",
                ) from None
    return list(range(first, first + count))
