"""Clients over TLS, and who they are to a broker, for tests."""

from __future__ import annotations

import ssl
from typing import Any

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.wire_client import Client
from tests.certificates import (
    client_context,
    of_broker,
)


class TlsClient(Client):
    """The client of the wire's tests, over TLS."""

    def __init__(self, broker: Broker, context: ssl.SSLContext) -> None:
        super().__init__((broker.host, broker.port))
        plain = self.socket
        try:
            self.socket: Any = context.wrap_socket(plain, server_hostname=broker.host)
        except BaseException:
            plain.close()
            raise


def encrypted_key() -> str:
    """The broker's key, behind the password "of the key"."""
    key = load_pem_private_key(of_broker().key.encode(), None)
    form = BestAvailableEncryption(b"of the key")
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, form).decode()


def gets_in(broker: Broker) -> bool:
    try:
        with TlsClient(broker, client_context()) as client:
            return bool(client.ask(Api.API_VERSIONS, 0).api_keys)
    except OSError:
        return False
