"""Compatibility levels: the earlier versions that a new schema must be compatible with, and in
which direction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from moldau.schemas.avro.compatibility import reading_problem
from moldau.schemas.incompatibility import Incompatibility


class Level(StrEnum):
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

    def looked_at(self, versions: Sequence[int]) -> list[int]:
        """Return which of these versions, oldest first, a new one is compared with."""
        if self is Level.NONE:
            return []
        return list(reversed(versions)) if self.is_transitive else list(versions[-1:])

    def problems(
        self, new: Any, versions: Iterable[tuple[int, Any]]
    ) -> tuple[int, list[Incompatibility]] | None:
        """Return the first version that a parsed schema is not compatible with, and why."""
        for version, old in versions:
            found: list[Incompatibility] = []
            if self.reads_old:
                found += new.problems_reading(old)
            if self.is_read_by_old:
                found += old.problems_reading(new)
            if found:
                return version, found
        return None

    def problem(self, new: Any, versions: Sequence[tuple[int, Any]]) -> str | None:
        """Return why an Avro schema may not follow these (version, schema) pairs, oldest first;
        None if it may.

        The latest is looked at first.
        """
        looked_at = list(reversed(versions)) if self.is_transitive else versions[-1:]
        for version, old in looked_at:
            if self.reads_old:
                problem = reading_problem(new, old)
                if problem is not None:
                    return f"it cannot read data written with version {version}: {problem}"
            if self.is_read_by_old:
                problem = reading_problem(old, new)
                if problem is not None:
                    return f"version {version} cannot read data written with it: {problem}"
        return None
