"""Offsets of a classic group, as whoever asks for them may expect them.

They never go back: each member begins where the group has got to, and a member of an earlier
generation can commit nothing once a later one has begun. So whoever asks is told at least the last
offset that was acknowledged before.

There is one exception. A commit that its member has given up may still be on its way, and arrive
after later ones that the member has sent over another connection. A member that joins again as it
was gets the same generation, and so its coordinator takes commits in the order in which they
arrive, as Kafka's does: the offset goes back to what the late commit says, and to nothing else. A
later generation ends that: once a member of it has read an offset, no earlier commit follows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from tests.simulation.checks.history import Violation

Key = tuple[UUID, int]


class Known(NamedTuple):
    """What is known of an offset: it is at least this, as of that generation."""

    generation: int = -1
    offset: int = -1
    # How often it has gone back so far.
    returns: int = 0


@dataclass
class Commits:
    """What the members of a group have committed, by topic and partition.

    An answer may lie in a socket for long, while others go on. So it is judged by what was `known`
    when it was asked for.
    """

    _known: dict[Key, Known] = field(default_factory=dict)
    _attempted: dict[Key, int] = field(default_factory=dict)
    # Generations and offsets of commits without an answer.
    _given_up: dict[Key, list[tuple[int, int]]] = field(default_factory=dict)
    # What offsets have gone back to.
    _returns: dict[Key, list[int]] = field(default_factory=dict)

    def known(self, key: Key) -> Known:
        return self._known.get(key, Known())

    def attempt(self, key: Key, offset: int) -> None:
        """A member is about to commit an offset."""
        self._attempted[key] = max(offset, self._attempted.get(key, -1))

    def give_up(self, key: Key, generation: int, offset: int) -> None:
        """A member got no answer to its commit."""
        self._given_up.setdefault(key, []).append((generation, offset))

    def commit(
        self, member: str, place: str, key: Key, since: Known, generation: int, offset: int
    ) -> None:
        """A member's commit was acknowledged."""
        if generation < since.generation or offset < self._least(key, since):
            raise Violation(
                f"{member} could commit {offset} of {place} in generation {generation} after "
                f"{since.offset} was committed in generation {since.generation}"
            )
        known = self.known(key)
        # What a later generation has found came after it.
        if generation >= known.generation:
            self._set(key, generation, max(offset, known.offset))

    def read(
        self, asker: str, place: str, key: Key, since: Known, offset: int, generation: int = -1
    ) -> None:
        """Somebody was told an offset: a member, of that generation when it asked, or another."""
        least, most = self._least(key, since), self._attempted.get(key, -1)
        is_late = offset < least and self._may_be_late(key, since, offset)
        if offset > most or (offset < least and not is_late):
            raise Violation(
                f"{asker} was told that {place} is committed up to {offset}; "
                f"{least} was acknowledged, {most} asked for"
            )
        known = self.known(key)
        is_first = generation > known.generation
        if (is_first or is_late) and self._may_be_late(key, known, offset):
            self._set(key, max(generation, known.generation), offset)
        elif is_first:
            self._set(key, generation, max(offset, known.offset))

    def _least(self, key: Key, since: Known) -> int:
        return min([since.offset, *self._returns.get(key, [])[since.returns :]])

    def _may_be_late(self, key: Key, known: Known, offset: int) -> bool:
        """Whether a commit of this offset may come after what is known."""
        return any(
            late == offset and generation >= known.generation
            for generation, late in self._given_up.get(key, ())
        )

    def _set(self, key: Key, generation: int, offset: int) -> None:
        returns = self._returns.setdefault(key, [])
        if offset < self.known(key).offset:
            returns.append(offset)
        self._known[key] = Known(generation, offset, len(returns))
