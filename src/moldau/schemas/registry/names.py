"""Names of subjects: `name`, in the default context, or `:.context:name`."""

from __future__ import annotations

import re

DEFAULT_CONTEXT = "."
GLOBAL_CONTEXT = ":.__GLOBAL:"
_QUALIFIED = re.compile(r":(\.[^:]*):(.*)", re.DOTALL)


def plain_name(subject: str) -> str:
    """Return the one way to write a subject: the default context is left out."""
    match = _QUALIFIED.fullmatch(subject)
    return match[2] if match and match[1] == DEFAULT_CONTEXT else subject


def context_of(subject: str) -> str:
    match = _QUALIFIED.fullmatch(subject)
    return match[1] if match else DEFAULT_CONTEXT


def in_context(context: str, name: str) -> str:
    return name if context == DEFAULT_CONTEXT else f":{context}:{name}"


def named(context: str, given: str) -> str:
    """Return the subject that a request means by a name, in the context of its path."""
    if not given.startswith(":."):
        given = in_context(context, given)
    return plain_name(given)


def beside(subject: str, other: str) -> str:
    """Return the subject that a schema of one means by the name of another, in a reference or an
    alias: one of its own context, unless another context is named."""
    return named(context_of(subject), plain_name(other))


def unqualified(subject: str) -> str:
    match = _QUALIFIED.fullmatch(subject)
    return match[2] if match else subject


def scopes(subject: str | None) -> list[str | None]:
    """Return where settings of a subject may be, the nearest first."""
    if subject is None:
        return [None]
    context = context_of(subject)
    around: list[str | None] = [] if context == DEFAULT_CONTEXT else [f":{context}:"]
    return [subject, *(each for each in around if each != subject), GLOBAL_CONTEXT, None]


def problem_of(subject: str) -> str | None:
    """Return what is wrong with a subject's name."""
    if not unqualified(subject) and context_of(subject) == DEFAULT_CONTEXT:
        return "it is empty"
    if any(ord(character) < 32 or ord(character) == 127 for character in subject):
        return "it has control characters"
    if len(subject) > 1000:
        return "it is longer than 1000 characters"
    if subject in ("__GLOBAL", "__EMPTY"):
        return "it is reserved"
    return None
