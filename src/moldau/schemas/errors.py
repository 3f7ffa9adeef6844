"""Errors of a schema store."""

from __future__ import annotations

from moldau.client.errors import ClientError


class SchemaError(ClientError):
    """Anything about schemas."""


class IncompatibleSchema(SchemaError):
    """A schema that the subject's mode does not let in; `reason` names the field."""

    def __init__(self, subject: str, mode: str, reason: str) -> None:
        super().__init__(f"not registered under {subject} ({mode.lower()}): {reason}")
        self.subject = subject
        self.mode = mode
        self.reason = reason


class SchemaNotFound(SchemaError):
    """A subject, version or id that the store does not have."""
