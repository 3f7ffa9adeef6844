"""References: `${ENV:NAME}` and `${FILE:path}` in a text, for what should not stand in it.

A password that a file refers to is in that file nowhere, and nowhere that its text is copied to.
`$${ENV:NAME}` stands for the reference itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

_REFERENCE = re.compile(r"(\$?)\$\{(ENV|FILE):([^{}]*)\}")
# What a referenced file may hold: a password, a key, a certificate.
_MOST_BYTES = 1 << 20


class BrokenReference(ValueError):
    """A variable that is not set, or a file that cannot be read."""


def resolve(text: str, *, escape: Callable[[str], str] | None = None) -> str:
    """Return the text with what it refers to; BrokenReference names what is not there.

    `escape` makes a value fit into the text around it.
    """

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        read = _variable(found[3]) if found[2] == "ENV" else _content(found[3])
        return read if escape is None else escape(read)

    return _REFERENCE.sub(value, text)


def resolve_property(name: str, text: str) -> str:
    """Return the text of a client's property; in a login module a value may have quotes."""
    return resolve(text, escape=_quoted if name.endswith("sasl.jaas.config") else None)


def with_absolute_paths(text: str, folder: Path) -> str:
    """Return the text with the same references, whatever folder they are read from."""

    def absolute(found: re.Match[str]) -> str:
        if found[1] or found[2] == "ENV":
            return found[0]
        return f"${{FILE:{folder / found[3]}}}"

    return _REFERENCE.sub(absolute, text)


def _variable(name: str) -> str:
    found = os.environ.get(name)
    if found is None:
        raise BrokenReference(f"the environment variable {name} is not set")
    return found


def _content(path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as problem:
        raise BrokenReference(f"the file {path} cannot be read: {problem.strerror}") from None
    except ValueError:
        raise BrokenReference(f"{path!r} is not the path of a file") from None
    if len(content) > _MOST_BYTES:
        raise BrokenReference(f"the file {path} is larger than {_MOST_BYTES} bytes")
    try:
        # Editors end the last line, and that is no part of a password.
        return content.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise BrokenReference(f"the file {path} is not text") from None


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
