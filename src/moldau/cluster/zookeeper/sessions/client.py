"""kazoo's client with the changes that we need: waits, security, the timeout that was granted."""

from __future__ import annotations

import importlib.util
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionDropped, ConnectionHandler
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL, make_acl, make_digest_acl

from moldau.cluster.store import StoreError
from moldau.security.key_material import TlsError
from moldau.security.tls import client_context
from moldau.security.tls_settings import TlsSettings

_TRIES_PER_SESSION = 4
# kazoo waits for a minute between attempts if it is let.
_RETRY = {"max_tries": -1, "delay": 0.02, "backoff": 1.6, "max_delay": 0.5, "max_jitter": 0.4}


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """How a broker proves to ZooKeeper who it is.

    `digest` is USER:PASSWORD, the same for all brokers, and `sasl` a name and password that the
    servers know; with `sets_acl` only who has them may read or write what they create. With `tls`
    connections are encrypted.
    """

    digest: str = field(default="", repr=False)
    sets_acl: bool = False
    tls: TlsSettings | None = None
    sasl: tuple[str, str] | None = field(default=None, repr=False)

    def auth_data(self) -> list[tuple[str, str]]:
        """Return what to say first on every connection."""
        return [("digest", self.digest)] if self.digest else []

    def acl(self) -> list[ACL] | None:
        """Return the ACL of new nodes; None leaves them to everybody."""
        if not self.sets_acl:
            return None
        found = []
        if self.sasl is not None:
            found.append(make_acl("sasl", self.sasl[0], all=True))
        if self.digest:
            user, _, password = self.digest.partition(":")
            found.append(make_digest_acl(user, password, all=True))
        return found

    def sasl_options(self) -> dict[str, str] | None:
        """Return what kazoo needs for SASL, None without; StoreError if it cannot do it here."""
        if self.sasl is None:
            return None
        if importlib.util.find_spec("puresasl") is None:
            raise StoreError(
                "zookeeper.sasl.jaas.config needs an extra: pip install 'moldau[zookeeper-sasl]'"
            )
        user, password = self.sasl
        return {"mechanism": "DIGEST-MD5", "username": user, "password": password}

    def context(self) -> ssl.SSLContext | None:
        """Return the context of TLS, None without; StoreError if it cannot be made."""
        if self.tls is None:
            return None
        try:
            return client_context(self.tls)
        except TlsError as problem:
            raise StoreError(f"zookeeper.{problem}") from None


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, which wait for a silent server for as long as that is worth.

    While a session lives (`has_session`) another server may still save it, so one that does not
    answer is given up after a part of it. Without one nothing is lost by waiting, and servers that
    are busy need their time to agree on one: they have `patience_s`.
    """

    def __init__(self, connect_within_s: float, context: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self._context = context
        self._connect_within_s = connect_within_s
        self.patience_s = connect_within_s
        self.has_session = False
        # Why no server has let us in so far, if they refused.
        self.refusal: StoreError | None = None

    def create_connection(self, *arguments: Any, **options: Any) -> Any:
        limit = self._connect_within_s if self.has_session else self.patience_s
        options["timeout"] = min(options.get("timeout") or limit, limit)
        connected = super().create_connection(*arguments, **options)
        if self._context is None:
            return connected
        # kazoo's own TLS checks no names, and reads no other keys than those in files.
        host = options["hostname"]
        connected.settimeout(options["timeout"])
        try:
            encrypted = self._context.wrap_socket(connected, server_hostname=host)
        except OSError:
            connected.close()
            raise
        encrypted.setblocking(False)
        return encrypted

    def select(self, readable: Any, writable: Any, failed: Any, timeout: float) -> Any:
        for each in readable:
            # What has been decrypted already does not show at the socket.
            if isinstance(each, ssl.SSLSocket) and each.pending():
                return [each], [], []
        # Before there is a session kazoo waits for nothing else than to be given one.
        if not self.has_session:
            timeout = max(timeout, self.patience_s)
        return super().select(readable, writable, failed, timeout)


class Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, where kazoo's own would end for good, or believe a wrong answer.

    A server that learns that the session has moved to another one answers nothing to the request
    that it learned this by, and yet answers what came after it, before it closes the connection.
    kazoo takes that, like all that it does not expect, for the end of its thread: the broker would
    be out of the cluster until it is restarted.

    kazoo numbers its requests from 1 on in each connection. A server takes what is committed for
    the answer to the session's oldest request of that number, and it may have been sent by an
    earlier connection. So numbers go on, as with Java's client.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._last_xid = 0
        super().__init__(*arguments, **options)

    @property
    def _xid(self) -> int:
        return self._last_xid

    @_xid.setter
    def _xid(self, number: int | None) -> None:
        # It is set to None or 0 to begin anew.
        self._last_xid = number or self._last_xid

    def _connect_attempt(self, *where: Any) -> Any:
        try:
            return super()._connect_attempt(*where)
        except Exception:
            # kazoo has logged it. What was asked may have been done or not.
            self.client._session_callback(KeeperState.CONNECTING)
            return None

    def _read_response(self, header: Any, buffer: Any, offset: int) -> Any:
        pending = self.client._pending
        if not pending or pending[0][2] != header.xid:
            expected = f"request {pending[0][2]}" if pending else "nothing"
            raise ConnectionDropped(f"an answer to request {header.xid}, but {expected} was due")
        return super()._read_response(header, buffer, offset)


def new_client(
    hosts: str,
    timeout_s: float,
    on_granted: Callable[[float], None],
    security: ZooKeeperSecurity,
) -> tuple[KazooClient, Handler]:
    """Return a client that asks for sessions of this length, not started.

    `on_granted` is told, on kazoo's thread and with each connection, how long the session lives
    without a sign of life: the ensemble has bounds of its own.
    """
    # kazoo waits for a server that accepts and then is silent for a session's length divided by
    # the number of hosts: a single one would be the end of the session.
    servers = hosts.split(",")
    servers *= -(-_TRIES_PER_SESSION // len(servers))
    handler = Handler(timeout_s / len(servers), security.context())
    client = KazooClient(
        ",".join(servers),
        timeout=timeout_s,
        handler=handler,
        connection_retry=KazooRetry(sleep_func=handler.sleep_func, **_RETRY),
        logger=_kazoo_logger(),
        auth_data=security.auth_data(),
        default_acl=security.acl(),
        sasl_options=security.sasl_options(),
    )
    client._connection = Connection(
        client,
        client._conn_retry.copy(),
        logger=client.logger,
        sasl_options=client._connection.sasl_options,
    )
    _authenticate_again(client, handler)
    connect = client._connection._connect

    def connect_and_tell(*where: Any) -> tuple[float, float]:
        read_timeout_ms, connect_timeout_ms = connect(*where)
        # kazoo keeps to itself what it was granted, but lets a read take two thirds of that.
        on_granted(round(read_timeout_ms * 1.5) / 1000)
        return read_timeout_ms, connect_timeout_ms

    client._connection._connect = connect_and_tell
    return client, handler


def _authenticate_again(client: KazooClient, handler: Handler) -> None:
    """Have kazoo connect again when SASL fails: it would give up for good, though a server that is
    going away looks the same as one that refuses."""
    authenticate = client._connection._authenticate_with_sasl
    was_let_in = False

    def authenticate_or_drop(*where: Any) -> None:
        nonlocal was_let_in
        try:
            authenticate(*where)
        except ConnectionDropped:
            raise
        except KazooException as problem:
            if not was_let_in:
                handler.refusal = StoreError(
                    "ZooKeeper rejected this broker's login; check the name and password in "
                    "zookeeper.sasl.jaas.config, and that the servers know them"
                )
            raise ConnectionDropped("authentication failed") from problem
        was_let_in = True
        handler.refusal = None

    client._connection._authenticate_with_sasl = authenticate_or_drop


def _kazoo_logger() -> logging.Logger:
    """kazoo repeats each failed attempt; what it means is said here once instead."""
    quiet = logging.getLogger("moldau.cluster.zookeeper.kazoo")
    quiet.setLevel(logging.ERROR)
    return quiet
