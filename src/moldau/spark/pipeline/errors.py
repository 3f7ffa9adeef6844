"""Errors of a pipeline: one message, and the line in its file."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with a file: in which part, on which line, and what."""

    message: str
    file: str = ""
    line: int = 0
    part: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file and self.line else ""
        part = f"{self.part}: " if self.part else ""
        return f"{place}{part}{self.message}"


class PipelineError(Exception):
    """A pipeline that cannot run, or has failed. `detail` is for those who ask for more."""

    def __init__(self, *problems: Problem, detail: str = "") -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
        self.detail = detail


class CheckpointInUse(PipelineError):
    """Another pipeline works with this checkpoint."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` where one of the known names is like it, else which there are."""
    names = list(known)
    near = difflib.get_close_matches(name, names, 1, 0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there are {', '.join(names)}" if names else ""
