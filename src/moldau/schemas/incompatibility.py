"""Incompatibilities: why data written with one schema cannot be read with another."""

from __future__ import annotations

import msgspec


class Incompatibility(msgspec.Struct, frozen=True):
    """One reason. `kind` is the name that Confluent's registry gives it, `path` a JSON pointer into
    the reader's schema, and `message` says it in words.
    """

    kind: str
    path: str
    message: str

    def __str__(self) -> str:
        """Write it as Confluent's registry does, which clients show as it is."""
        return f"{{errorType:'{self.kind}', description:'{self.message}', path:'{self.path}'}}"
