"""What is wrong with a format or its schema, before any record is read."""

from __future__ import annotations


class FormatError(ValueError):
    """A schema that the format cannot have, or that is none."""


class BadRecord(Exception):
    """A record that does not parse, of a source that has no topic for such records."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(
            f"the record at {topic}-{partition} offset {offset} does not parse: {reason}. "
            f"To have such records set aside, name a topic in dead_letters"
        )
