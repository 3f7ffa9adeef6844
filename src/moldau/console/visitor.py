"""Visitors: those who use a console."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.security.client import ClientSecurity


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks: a name, if anybody signed in, and the security by which the cluster is asked."""

    user: str | None
    security: ClientSecurity | None
    address: str = ""

    @property
    def name(self) -> str:
        return self.user or "anonymous"
