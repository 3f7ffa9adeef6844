"""Regular expressions that groups subscribe by, in RE2's syntax, matched off the event loop.

RE2 takes time in proportion to the length of what it matches, whatever the expression. Compiling is
bounded by memory, and both are still too much for the loop: a group may have many, and a cluster
many topics.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.broker.coordination.groups.consumer.messages import Limits
from moldau.broker.coordination.groups.consumer.state import GroupState
from moldau.broker.coordination.groups.consumer.topics import Topics

# Topics come and go; what matches is looked up no more often than this for it.
_LEAST_INTERVAL_MS = 10_000


def problem_with(regex: str) -> str | None:
    """Return why an expression is none; None if it is one. Any thread."""
    import re2

    try:
        re2.compile(regex, _options())
    except re2.error as error:
        text = error.args[0] if error.args else error
        return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    return None


def matching(regexes: Iterable[str], names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Find the names that each expression matches as a whole. Any thread."""
    import re2

    found = {}
    every = list(names)
    for regex in regexes:
        try:
            pattern = re2.compile(regex, _options())
        except re2.error:
            # A later version may have taken it.
            found[regex] = frozenset[str]()
        else:
            found[regex] = frozenset(name for name in every if pattern.fullmatch(name))
    return found


def _options() -> object:
    import re2

    options = re2.Options()
    # An expression that is wrong is its sender's business, and answered; RE2 would write to stderr.
    options.log_errors = False
    return options


class RegexRefresh:
    """When the expressions of one group are to be looked up: those that are new at once, all of
    them when topics have changed or much time has passed."""

    __slots__ = ("_is_under_way", "_resolved_at", "_seen_topics")

    def __init__(self) -> None:
        self._is_under_way = False
        self._resolved_at = 0
        self._seen_topics = (-1, 0)

    def due(self, state: GroupState, topics: Topics, now_ms: int, limits: Limits) -> frozenset[str]:
        """Return what is to be looked up now; then somebody does, until `done`."""
        if not state.regex_users or self._is_under_way:
            return frozenset()
        found = frozenset(regex for regex in state.regex_users if regex not in state.regexes)
        since_ms = now_ms - self._resolved_at
        version = (topics.version, state.taken_back)
        is_stale = version != self._seen_topics and since_ms >= _LEAST_INTERVAL_MS
        if is_stale or since_ms >= limits.regex_refresh_ms:
            found = frozenset(state.regex_users)
            self._seen_topics, self._resolved_at = version, now_ms
        self._is_under_way = bool(found)
        return found

    def done(self) -> None:
        self._is_under_way = False
