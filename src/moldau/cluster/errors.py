"""Refusals of changes to the cluster."""

from __future__ import annotations

from moldau.wire.errors import Error

# Messages quote what a client sent, and older versions cannot carry a string above 32 KB.
MAX_MESSAGE_LENGTH = 1000


class ClusterError(Exception):
    """A request that the cluster does not grant: the code for programs, the message for people."""

    def __init__(self, error: Error, message: str) -> None:
        if len(message) > MAX_MESSAGE_LENGTH:
            message = message[: MAX_MESSAGE_LENGTH - 3] + "..."
        super().__init__(message)
        self.error = error
        self.message = message
