"""The door of a listener: how its clients prove who they are, by TLS or SASL or both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any

from moldau.broker.net.connections import Connections
from moldau.broker.net.context import plain_host
from moldau.broker.net.doors.tls_acceptor import TlsAcceptor
from moldau.broker.net.doors.tls_contexts import TlsContexts
from moldau.broker.security.audit import BY_CERTIFICATE, Audit
from moldau.broker.security.credentials import Credentials, NoCredentials
from moldau.broker.security.distinguished_name import subject_of
from moldau.broker.security.principal import ANONYMOUS, Principal
from moldau.broker.security.principal_rules import (
    InvalidRules,
    NoRuleMatches,
    parse_rules,
    user_of,
)
from moldau.broker.security.sasl.sasl import SaslDoor
from moldau.broker.settings.listeners import ListenerAddress
from moldau.broker.settings.security import SecuritySettings, of_listener
from moldau.security.key_material import TlsError
from moldau.settings import InvalidSetting


class SecureDoor:
    """The door of one listener. Event loop only."""

    def __init__(
        self, address: ListenerAddress, given: Mapping[str, str], settings: SecuritySettings
    ) -> None:
        self._name = address.name
        self._timeout_s = settings.connection_authentication_timeout_ms / 1000
        try:
            self._rules = parse_rules(settings.ssl_principal_mapping_rules)
        except InvalidRules as reason:
            rules = settings.ssl_principal_mapping_rules
            raise InvalidSetting("ssl.principal.mapping.rules", rules, str(reason)) from None
        self.contexts: TlsContexts | None = None
        if address.has_tls:
            try:
                self.contexts = TlsContexts(address.name, settings)
            except TlsError as problem:
                raise InvalidSetting(
                    problem.setting, None, f"{problem.reason} (listener {address.name})"
                ) from None
        # The users of the cluster, and what those that do not exist get their salts from.
        self.credentials: Credentials = NoCredentials()
        self.secret: Callable[[], bytes] = bytes
        # Hears of certificates that prove nobody, if it is given.
        self.audit: Audit | None = None
        self.sasl: SaslDoor | None = None
        if address.has_sasl:
            from moldau.broker.security.sasl.doors import new_door

            self.sasl = new_door(
                address.name, given, settings, lambda: self.credentials, lambda: self.secret()
            )

    def watches(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Return the work that goes on as long as the listener is open."""
        if self.contexts is not None:
            yield self.contexts.watch()
        for mechanism in () if self.sasl is None else self.sasl.mechanisms.values():
            watch = getattr(mechanism, "watch", None)
            if watch is not None:
                yield watch()

    def configure(self, given: Mapping[str, str]) -> None:
        """Take in settings that were changed while the broker runs."""
        if self.contexts is not None:
            self.contexts.configure(of_listener(given, self._name))

    async def prepare(self) -> None:
        """Load what has changed before the listener is open."""
        if self.contexts is not None:
            await self.contexts.refresh()
        for mechanism in () if self.sasl is None else self.sasl.mechanisms.values():
            prepare = getattr(mechanism, "prepare", None)
            if prepare is not None:
                await asyncio.to_thread(prepare)

    def acceptor(
        self,
        connections: Connections[Any],
        connect: Callable[[], asyncio.BaseProtocol],
        for_brokers: bool,
    ) -> TlsAcceptor | None:
        """Return what takes the connections of a TLS listener, None for others."""
        if self.contexts is None:
            return None
        return TlsAcceptor(
            connections,
            self.contexts,
            connect,
            self._timeout_s,
            partial(connections.make_room, for_brokers),
            self.refused,
        )

    def refused(self, host: str, reason: str, name: str = "") -> None:
        """Tell the audit of a client whose certificate proves nobody; `name` is what it says."""
        if self.audit is not None:
            self.audit.login_refused(host, self._name, BY_CERTIFICATE, reason, name)

    def principal_of(self, transport: asyncio.BaseTransport) -> Principal:
        """Return whom the certificate of a client names; ValueError if that is nobody."""
        if self.sasl is not None:
            # Nobody, until it says who it is.
            return ANONYMOUS
        encrypted = transport.get_extra_info("ssl_object")
        certificate = encrypted.getpeercert(binary_form=True) if encrypted is not None else None
        if certificate is None:
            return ANONYMOUS
        subject = subject_of(certificate)
        host = plain_host((transport.get_extra_info("peername") or "?")[0])
        try:
            principal = Principal("User", user_of(self._rules, subject))
        except NoRuleMatches:
            self.refused(host, "is named by no rule of ssl.principal.mapping.rules", subject)
            raise
        if self.audit is not None:
            self.audit.login_admitted(host, self._name, BY_CERTIFICATE, principal)
        return principal
