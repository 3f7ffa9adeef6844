"""Patterns of JSON Schemas, matched in bounded time whatever they and the values are.

jsonschema matches them with Python's `re`, which may take for ever. In the process that checks
batches, and only there, its modules get re2 instead.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

# Those that match patterns: of `pattern` and `patternProperties`, of properties beyond these, and
# the same for older drafts.
_MODULES = ("_keywords", "_legacy_keywords", "_utils")
_MOST_KEPT = 1000


class UnboundedPattern(Exception):
    """A pattern that re2 does not take, such as one that looks ahead."""

    def __init__(self, pattern: str, problem: object) -> None:
        super().__init__(f"the pattern {pattern[:100]!r} cannot be matched here: {problem}")


class _Bounded:
    """What jsonschema uses of `re`."""

    @staticmethod
    def search(pattern: str, text: str) -> Any:
        return _compiled(pattern).search(text)


@lru_cache(_MOST_KEPT)
def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as problem:
        reason = problem.args[0] if problem.args else problem
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise UnboundedPattern(pattern, text) from None


def bound_patterns() -> None:
    """Have jsonschema match by re2 in this process from now on."""
    for name in _MODULES:
        module: Any = import_module(f"jsonschema.{name}")
        assert hasattr(module, "re"), f"jsonschema.{name} matches no patterns any more"
        module.re = _Bounded
