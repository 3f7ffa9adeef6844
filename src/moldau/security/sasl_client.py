"""SASL from a client's side: the messages of each mechanism, without I/O but for tokens."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Protocol

from moldau.security.scram_client import Scram, ServerNotTrusted

__all__ = ["ClientExchange", "Oauthbearer", "Plain", "Scram", "ServerNotTrusted"]

_FETCH_WITHIN_S = 10.0
_LARGEST_TOKEN = 1 << 16


class ClientExchange(Protocol):
    """One authentication."""

    def first(self) -> bytes:
        """Return the first message."""

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the answer to a challenge, None when there is nothing left to say.

        ServerNotTrusted if the server is not the one that it should be.
        """


class Plain:
    """A name and a password as they are."""

    def __init__(self, user: str, password: str) -> None:
        self._message = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> None:
        return None


class Oauthbearer:
    """A token, from a file or from the provider."""

    def __init__(self, url: str, login: Mapping[str, str]) -> None:
        self._url = url
        self._login = login

    def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {self.token()}\x01\x01".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        # A challenge says why the token does not count; after this the broker says so again.
        return b"\x01" if challenge else None

    def token(self) -> str:
        """Fetch a token; OSError if none comes."""
        # Only here, since they take their time to load.
        import urllib.parse
        import urllib.request

        if self._url.startswith("file://"):
            with urllib.request.urlopen(self._url) as file:
                return str(file.read(_LARGEST_TOKEN), "ascii").strip()
        fields = {"grant_type": "client_credentials"}
        if "scope" in self._login:
            fields["scope"] = self._login["scope"]
        request = urllib.request.Request(self._url, urllib.parse.urlencode(fields).encode())
        secret = f"{self._login.get('clientId', '')}:{self._login.get('clientSecret', '')}"
        request.add_header("Authorization", f"Basic {b64encode(secret.encode()).decode()}")
        with urllib.request.urlopen(request, timeout=_FETCH_WITHIN_S) as answer:
            found = json.loads(answer.read(_LARGEST_TOKEN))
        return str(found["access_token"])
