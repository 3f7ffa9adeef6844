"""Calls of the registry's API: a request, taken apart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qs, unquote

import msgspec

from moldau.http.registry.errors import (
    bad_request,
    invalid_subject,
    invalid_version,
    subject_not_found,
    too_large,
    unprocessable,
    version_not_found,
)
from moldau.http.registry.registry import SchemaRegistry
from moldau.schemas.registry.names import (
    DEFAULT_CONTEXT,
    beside,
    in_context,
    named,
    problem_of,
)
from moldau.schemas.registry.state import RegistryState, Version

T = TypeVar("T")
# The last version, and the last id: messages have room for no larger one.
LAST = (1 << 31) - 1
# The most that a body may have beside the text of a schema. To make objects of megabytes would hold
# up the event loop, and a thread would hold it up as well: it has the interpreter to itself then.
_MOST_BESIDE = 256 << 10


class _Text(msgspec.Struct):
    """The text of a schema in a body, which is not looked into; nor is all the rest."""

    schema: msgspec.Raw = msgspec.Raw(b"")


class Rights(Protocol):
    """What a sender who has no right on the whole cluster may do, by subject."""

    def may_see(self, subject: str) -> bool: ...

    def may_alter(self, subject: str) -> bool:
        """Tell whether it may change a subject's settings."""


class Call:
    """One request: `args` are the parts of its path that stand for something.

    `rights` are those of its sender; None where it may do everything. They were judged by the
    registry's state when its operation began, and operations find the subject that an alias stands
    for in that same state: before they await anything.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        args: Sequence[str],
        query: bytes,
        body: bytes,
        context: str,
        rights: Rights | None = None,
    ) -> None:
        self.registry = registry
        self.args = args
        self.context = context
        self.rights = rights
        self._query = parse_qs(query.decode("latin-1"), keep_blank_values=True)
        self._body = body

    @property
    def state(self) -> RegistryState:
        return self.registry.state

    def body(self, kind: type[T]) -> T:
        body = self._body or b"{}"
        try:
            if len(body) > _MOST_BESIDE:
                beside = len(body) - len(msgspec.json.decode(body, type=_Text).schema)
                if beside > _MOST_BESIDE:
                    raise too_large(_MOST_BESIDE)
            return msgspec.json.decode(body, type=kind)
        except msgspec.ValidationError as problem:
            raise unprocessable(f"the body does not have the expected form: {problem}") from None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
            raise bad_request(f"the body is not JSON: {problem}") from None

    def flag(self, name: str, default: bool = False) -> bool:
        given = self.text(name)
        return default if given is None else given.lower() == "true"

    def text(self, name: str) -> str | None:
        values = self._query.get(name)
        return values[-1] if values and values[-1] else None

    def texts(self, name: str) -> list[str]:
        return self._query.get(name, [])

    def subject_prefix(self, default: str) -> str:
        """Return what the names of a list of subjects begin with: those of the path's context, or
        `default` where the request says nothing."""
        given = self._query.get("subjectPrefix")
        if given is None and self.context == DEFAULT_CONTEXT:
            return default
        prefix = given[-1] if given else ""
        return prefix if prefix.startswith((":.", ":*:")) else in_context(self.context, prefix)

    def number(self, name: str, default: int) -> int:
        given = self.text(name)
        try:
            return default if given is None else int(given)
        except ValueError:
            raise bad_request(f"{name} is {given!r}, but must be a number") from None

    def page(self, found: list[T]) -> list[T]:
        """Cut a list to what the request wants of it."""
        offset, limit = max(0, self.number("offset", 0)), self.number("limit", -1)
        return found[offset : offset + limit] if limit >= 0 else found[offset:]

    def subject(self, given: str | None = None) -> str:
        """Return the subject of the path, or another name, in its context."""
        name = self.args[0] if given is None else given
        problem = problem_of(name)
        if problem is not None:
            raise invalid_subject(name, problem)
        return named(self.context, name)

    def known_subject(self) -> str:
        """Return the subject of the path, or the one that it is an alias of."""
        subject = self.subject()
        config = self.state.configs.get(subject)
        return beside(subject, config.alias) if config is not None and config.alias else subject

    def version_number(self, given: str, subject: str, *, deleted: bool = False) -> int:
        """Return the number that a version's name stands for; -1 and `latest` are the last one."""
        if is_latest(given):
            versions = self.state.versions(subject, deleted=deleted)
            if not versions:
                raise subject_not_found(subject)
            return versions[-1].version
        # Only digits of this kind: others pass for numbers too.
        if not (given.isascii() and given.isdigit() and 1 <= int(given[:11]) <= LAST):
            raise invalid_version(given[:100])
        return int(given)

    def version(self, subject: str, given: str, *, deleted: bool = False) -> Version:
        number = self.version_number(given, subject, deleted=deleted)
        if not self.state.has_subject(subject, deleted=deleted):
            raise subject_not_found(subject)
        found = self.state.version(subject, number)
        if found is None or (found.deleted and not deleted):
            raise version_not_found(number)
        return found


def is_latest(given: str) -> bool:
    """Tell whether a version's name stands for the last one."""
    return given.strip().lower() in ("latest", "-1")


Handler = Callable[[Call], Awaitable[Any]]


class Operation:
    """One operation of the API. `*` in the path is a part that stands for something."""

    def __init__(self, method: str, path: str, handler: Handler, is_write: bool = False) -> None:
        self.method = method
        self.parts = path.strip("/").split("/")
        self.handler = handler
        self.is_write = is_write

    def match(self, parts: Sequence[str]) -> list[str] | None:
        """Return the parts of a path that stand for something; None for another path."""
        if len(self.parts) != len(parts):
            return None
        args = []
        for wanted, part in zip(self.parts, parts, strict=True):
            if wanted == "*":
                args.append(unquote(part, errors="replace"))
            elif wanted != part:
                return None
        return args
