"""JAAS strings: how Kafka's settings name a login module and its options.

org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_FLAGS = ("required", "requisite", "sufficient", "optional")
_WORD = r'[^\s"=;]+'
_TEXT = r'"(?:\\.|[^"\\])*"'
_HEAD = re.compile(rf"\s*({_WORD})\s+({_WORD})")
_OPTION = re.compile(rf"\s+({_WORD})\s*=\s*({_TEXT}|{_WORD})", re.DOTALL)
_END = re.compile(r"\s*;\s*$")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class InvalidJaas(ValueError):
    """A text that is not one login module with its options. The message never shows the text."""


@dataclass(frozen=True, slots=True)
class Jaas:
    """One login module, by its name without the package, and its options."""

    module: str
    options: dict[str, str] = field(repr=False)


def parse_jaas(text: str) -> Jaas:
    """Return what a `sasl.jaas.config` says; InvalidJaas if it cannot be read."""
    head = _HEAD.match(text)
    if head is None:
        raise InvalidJaas("expected a login module and 'required'")
    if head[2].lower() not in _FLAGS:
        raise InvalidJaas(f"the login module must be followed by one of {', '.join(_FLAGS)}")
    options = {}
    position = head.end()
    while found := _OPTION.match(text, position):
        key, value = found.groups()
        if value.startswith('"'):
            value = _ESCAPE.sub(r"\1", value[1:-1])
        options[key] = value
        position = found.end()
    if _END.match(text, position) is None:
        after = f" after {list(options)[-1]}" if options else ""
        raise InvalidJaas(f'expected key="value" or the final semicolon{after}')
    return Jaas(head[1].rpartition(".")[2], options)
