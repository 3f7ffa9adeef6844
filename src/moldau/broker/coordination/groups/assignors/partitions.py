"""Partitions of a topic in the order of Kafka's hash sets, which decides who gives up which.

Kafka writes a member's partitions to its record in the order of a java.util.HashSet. Read back,
they are put into another one in that order. Partitions that share a place in the table stay in the
order in which they came, so that it takes the history of a set to know its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

_SMALLEST_TABLE = 16


class Partitions(frozenset[int]):
    """A set of partitions that knows the order of its record. It equals any set of the same."""

    __slots__ = ("order",)

    order: tuple[int, ...]


def in_order(order: Iterable[int]) -> frozenset[int]:
    """Return the set of partitions that a record lists in this order."""
    listed = tuple(dict.fromkeys(order))
    if all(one < other for one, other in pairwise(listed)):
        # The order that is taken for granted, which most have.
        return frozenset(listed)
    found = Partitions(listed)
    found.order = listed
    return found


def order_of(partitions: frozenset[int]) -> Sequence[int]:
    """Return the order in which a record lists them."""
    return partitions.order if isinstance(partitions, Partitions) else sorted(partitions)


def walk(partitions: frozenset[int]) -> list[int]:
    """Return partitions in the order in which Kafka goes through them once their record is read."""
    table = _table(len(partitions))
    return sorted(order_of(partitions), key=lambda each: each & (table - 1))


def changed(before: frozenset[int], kept: Sequence[int], gained: Sequence[int]) -> frozenset[int]:
    """Return what is left of a set, in the order of a walk, and what was added to it after that."""
    found = [*kept, *gained]
    table = _table(len(before) if kept else 0)
    while len(found) > table * 3 // 4:
        table *= 2
    return in_order(sorted(found, key=lambda each: each & (table - 1)))


def _table(size: int) -> int:
    """Return the size of the table in a set that was made of that many elements at once."""
    table = _SMALLEST_TABLE
    # Somewhat larger than it must be.
    while size and table < size * 4 // 3 + 1:
        table *= 2
    return table
