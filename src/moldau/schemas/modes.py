"""Modes: the earlier versions that a new schema must be compatible with, and in which direction."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from moldau.schemas.compatibility import reading_problem


class Mode(StrEnum):
    """A subject's rule for new versions.

    Backward: the new schema reads what the one before it wrote, so readers go first. Forward: the
    one before it reads what the new one writes, so writers go first. Full: both. The transitive
    forms look at all versions instead of the latest.
    """

    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"
    NONE = "NONE"

    @property
    def is_transitive(self) -> bool:
        return self.value.endswith("_TRANSITIVE")

    @property
    def reads_old(self) -> bool:
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_read_by_old(self) -> bool:
        return self.value.startswith(("FORWARD", "FULL"))

    def problem(self, new: Any, versions: Sequence[tuple[int, Any]]) -> str | None:
        """Return why a schema may not follow these (version, schema) pairs, oldest first; None if
        it may.

        The latest is looked at first.
        """
        looked_at = list(reversed(versions)) if self.is_transitive else versions[-1:]
        for version, old in looked_at:
            if self.reads_old:
                problem = reading_problem(new, old)
                if problem is not None:
                    return f"it cannot read what version {version} wrote: {problem}"
            if self.is_read_by_old:
                problem = reading_problem(old, new)
                if problem is not None:
                    return f"version {version} cannot read what it writes: {problem}"
        return None
