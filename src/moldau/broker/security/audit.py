"""The audit: every refusal, and on request every admission, logins included, with who, from where
and by which rule.

The first of a kind is told at once. Those that follow are counted and told together at the end of
an interval, so that a flood stays one line.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from moldau.broker.security.principal import Principal, shortened
from moldau.broker.settings.http import HTTP
from moldau.wire.acls import Operation, Resource, in_words
from moldau.wire.apis import Api

logger = logging.getLogger("moldau.audit")

# The kinds that are counted apart in an interval; all others share one line.
_MOST_KINDS = 1000
# The names of resources that are told of one kind, and how much of each: who asks chooses them.
_MOST_NAMES = 10
_LONGEST_NAME = 255

# The mechanism of those who prove who they are by TLS alone.
BY_CERTIFICATE = "certificate"
# Why somebody was let in.
_PROVED = "proved"

Question = tuple[Principal, str, int, int, str]
Kind = tuple[Principal | None, str, int, int, int, bool, str]
# A host, the listener that it tried, by which mechanism, and either why that failed or who was let
# in; the other is empty.
LoginKind = tuple[str, str, str, str, str]


class Entry(msgspec.Struct):
    """What was decided alike in one interval: how often, and on which resources."""

    kind: Kind
    count: int = 0
    names: set[str] = msgspec.field(default_factory=set)

    def described(self) -> dict[str, Any]:
        """Return it for programs, as the topic of the audit has it."""
        principal, host, api, operation, resource, allowed, rule = self.kind
        return {
            "decision": "allowed" if allowed else "denied",
            "principal": None if principal is None else str(principal),
            "host": host,
            "api": Api(api).name if api in set(Api) else "HTTP",
            "operation": in_words(Operation(operation)),
            "resource": in_words(Resource(resource)),
            "names": sorted(self.names),
            "rule": rule,
            "count": self.count,
        }

    def __str__(self) -> str:
        entry = self.described()
        names = ", ".join(map(repr, entry["names"]))
        if len(self.names) >= _MOST_NAMES:
            names += " and others"
        who = shortened(entry["principal"] or "others", _LONGEST_NAME)
        times = "" if self.count == 1 else f" {self.count} times"
        return (
            f"{entry['decision']}{times}: {who} from {entry['host']}, {entry['operation']} on "
            f"{entry['resource']} {names} for {entry['api']} ({entry['rule']})"
        )


class Logins(msgspec.Struct):
    """Logins that ended alike in one interval: how often, and as whom they were tried."""

    kind: LoginKind
    count: int = 0
    names: set[str] = msgspec.field(default_factory=set)

    def described(self) -> dict[str, Any]:
        """Return it for programs, as the topic of the audit has it."""
        host, listener, mechanism, reason, principal = self.kind
        return {
            "decision": "allowed" if principal else "denied",
            "principal": principal or None,
            "host": host,
            "api": _asked_by(listener, mechanism),
            "operation": "Login",
            "resource": "Listener",
            "names": [listener],
            "users": sorted(self.names),
            "mechanism": mechanism,
            "rule": reason or _PROVED,
            "count": self.count,
        }

    def __str__(self) -> str:
        host, listener, mechanism, reason, principal = self.kind
        decision = "allowed" if principal else "denied"
        times = "" if self.count == 1 else f" {self.count} times"
        users = ", ".join(map(repr, sorted(self.names)))
        if len(self.names) >= _MOST_NAMES:
            users += " and others"
        who = f" as {users}" if users else ""
        how = f" by {mechanism}" if mechanism else ""
        why = reason or _PROVED
        return f"{decision}{times}: login from {host} at {listener}{how}{who} ({why})"


def _asked_by(listener: str, mechanism: str) -> str:
    if mechanism == BY_CERTIFICATE:
        return "TLS"
    return HTTP if listener == HTTP else Api.SASL_AUTHENTICATE.name


class Audit:
    """The decisions of one broker, counted per interval. Event loop only.

    `publish` is given what each interval had, for whoever keeps it.
    """

    def __init__(
        self,
        call_later: Callable[..., asyncio.TimerHandle],
        interval_ms: int,
        *,
        with_admissions: bool = False,
    ) -> None:
        self._call_later = call_later
        self._interval_s = interval_ms / 1000
        self.with_admissions = with_admissions
        self._entries: dict[Kind | LoginKind, Entry | Logins] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.publish: Callable[[list[dict[str, Any]]], None] | None = None

    def note(self, question: Question, allowed: bool, rule: str, api: int) -> None:
        """Count a decision."""
        if allowed and not self.with_admissions:
            return
        principal, host, operation, resource, name = question
        kind: Kind = (principal, host, api, operation, resource, allowed, rule)
        entry = self._entries.get(kind)
        if entry is None:
            if len(self._entries) >= _MOST_KINDS:
                kind = (None, "anywhere", api, operation, resource, allowed, "various")
                entry = self._entries.get(kind)
            if entry is None:
                entry = self._entries[kind] = Entry(kind)
        self._count(entry, name)

    def login_refused(
        self, host: str, listener: str, mechanism: str, reason: str, user: str
    ) -> None:
        """Count a login that failed; `user` is who was tried, empty if nobody was named.

        However many names a host tries, they are of one kind.
        """
        why = f"the user {reason}" if user else reason
        self._login((host, listener, mechanism, why, ""), user)

    def login_admitted(
        self, host: str, listener: str, mechanism: str, principal: Principal
    ) -> None:
        """Count a login of somebody who proved who they are."""
        if self.with_admissions:
            self._login((host, listener, mechanism, "", str(principal)), principal.name)

    def _login(self, kind: LoginKind, user: str) -> None:
        entry = self._entries.get(kind)
        if entry is None:
            if len(self._entries) >= _MOST_KINDS:
                admitted = "others" if kind[-1] else ""
                kind = ("anywhere", kind[1], "", "various", admitted)
                entry = self._entries.get(kind)
            if entry is None:
                entry = self._entries[kind] = Logins(kind)
        self._count(entry, user)

    def _count(self, entry: Entry | Logins, name: str) -> None:
        entry.count += 1
        if name and len(entry.names) < _MOST_NAMES:
            entry.names.add(shortened(name, _LONGEST_NAME))
        if entry.count == 1:
            logger.info("%s", str(entry))
        if self._timer is None:
            self._timer = self._call_later(self._interval_s, self.tell)

    def tell(self) -> None:
        """Tell what was counted since the first of each kind, and start again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        entries, self._entries = list(self._entries.values()), {}
        for entry in entries:
            if entry.count > 1:
                logger.info("%s", str(entry))
        if self.publish is not None and entries:
            self.publish([entry.described() for entry in entries])
