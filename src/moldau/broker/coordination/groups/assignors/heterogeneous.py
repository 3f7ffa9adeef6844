"""Balancing members that read different topics.

Everyone keeps what it has of the topics that it still reads. What nobody has goes to the least
loaded reader of its topic, topics with the most partitions per reader first. Then, topic by topic,
partitions move from the most to the least loaded of its readers while the two differ by more than
one; once a whole round of topics moves nothing, or after some rounds, that is the balance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from moldau.broker.coordination.groups.assignors.assignor import Assignment, MemberSpec
from moldau.broker.coordination.groups.assignors.hash_order import hash_order, string_hash
from moldau.broker.coordination.groups.assignors.partitions import changed, walk

_MOST_ROUNDS = 16
_NOBODY = -1
_NONE: frozenset[int] = frozenset()


class Balance:
    """One assignment in the making. Members go by their places in a list."""

    def __init__(self, members: Mapping[str, MemberSpec], sizes: Mapping[UUID, int]) -> None:
        self._ids = hash_order(members, string_hash)
        self._members = [members[id] for id in self._ids]
        self._sizes = sizes
        self._loads = [0] * len(self._ids)
        self._readers: dict[UUID, list[int]] = {topic: [] for topic in sizes}
        self._owners: dict[UUID, list[int]] = {
            topic: [_NOBODY] * size for topic, size in sizes.items()
        }
        # Partitions that somebody was given, the last one last.
        self._moves: dict[UUID, dict[int, None]] = {}
        for place, member in enumerate(self._members):
            for topic in member.topics:
                self._readers[topic].append(place)

    def assign(self) -> dict[str, Assignment]:
        self._keep()
        self._moves.clear()
        self._give_out()
        self._balance()
        found: list[dict[UUID, frozenset[int]]] = [{} for _ in self._ids]
        for topic, owners in self._owners.items():
            moves = self._moves.get(topic, {})
            gained: dict[int, list[int]] = {}
            for partition in moves:
                gained.setdefault(owners[partition], []).append(partition)
            for place in set(owners):
                if place != _NOBODY:
                    had = self._members[place].assigned.get(topic, _NONE)
                    kept = [each for each in walk(had) if owners[each] == place]
                    kept = [each for each in kept if each not in moves]
                    gets = gained.get(place, ())
                    is_same = len(kept) == len(had) and not gets
                    found[place][topic] = had if is_same else changed(had, kept, gets)
        return dict(zip(self._ids, found, strict=True))

    def _keep(self) -> None:
        for place, member in enumerate(self._members):
            for topic, partitions in member.assigned.items():
                if topic in member.topics:
                    for partition in partitions:
                        self._move(topic, partition, place)

    def _give_out(self) -> None:
        free = {
            topic: [partition for partition, owner in enumerate(owners) if owner == _NOBODY]
            for topic, owners in self._owners.items()
        }
        for topic in self._ordered([topic for topic, partitions in free.items() if partitions]):
            loads = _Loads(self._readers[topic], self._loads)
            for partition in free[topic]:
                self._move(topic, partition, loads.next_least())

    def _balance(self) -> None:
        topics = self._ordered([topic for topic, who in self._readers.items() if len(who) > 1])
        last_moved = -1
        for _ in range(_MOST_ROUNDS):
            for place, topic in enumerate(topics):
                if place == last_moved:
                    return
                if self._balance_topic(topic) or last_moved == -1:
                    last_moved = place

    def _balance_topic(self, topic: UUID) -> bool:
        """Return whether a partition had to move."""
        loads = _Loads(self._readers[topic], self._loads)
        if loads.imbalance <= 1:
            return False
        # What each has of the topic, the last first to go.
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic]):
            held.setdefault(owner, []).append(partition)
        has_moved = False
        while not loads.is_balanced():
            giver = loads.next_most(lambda member: bool(held.get(member)))
            if giver is None:
                break
            partition = held[giver].pop()
            taker = loads.next_least()
            if loads.is_balanced():
                break
            self._move(topic, partition, taker)
            has_moved = True
        return has_moved

    def _move(self, topic: UUID, partition: int, to: int) -> None:
        owners = self._owners[topic]
        if owners[partition] != _NOBODY:
            self._loads[owners[partition]] -= 1
        owners[partition] = to
        self._loads[to] += 1
        moves = self._moves.setdefault(topic, {})
        moves.pop(partition, None)
        moves[partition] = None

    def _ordered(self, topics: Sequence[UUID]) -> list[UUID]:
        """Order topics by the partitions per reader, the most first, then by the fewest readers."""

        def rank(topic: UUID) -> tuple[float, int, tuple[int, int]]:
            readers = len(self._readers[topic])
            return -self._sizes[topic] / readers, readers, _java_order(topic)

        return sorted(topics, key=rank)


class _Loads:
    """The readers of one topic by how many partitions they have, from both ends.

    Least and most loaded are ranges that grow towards each other: all members with the least load
    get one more in turn, then all of them and those that had one more before, and so on. `loads` is
    the balance's own list, which changes between the calls.
    """

    def __init__(self, readers: Sequence[int], loads: Sequence[int]) -> None:
        self._loads = loads
        self._sorted = sorted(readers, key=lambda member: (loads[member], member))
        self._least = loads[self._sorted[0]] - 1
        self._least_end = 0
        self._next_least = 0
        self._most = loads[self._sorted[-1]] + 1
        self._most_start = self._most_end = len(self._sorted)
        self._next_most = len(self._sorted) - 1

    @property
    def imbalance(self) -> int:
        return self._loads[self._sorted[-1]] - self._loads[self._sorted[0]]

    def is_balanced(self) -> bool:
        return self._most - self._least <= 1

    def next_least(self) -> int:
        ordered, loads = self._sorted, self._loads
        if self._next_least >= self._least_end:
            self._least += 1
            while self._least_end < len(ordered) and (
                loads[ordered[self._least_end]] == self._least
            ):
                self._least_end += 1
            self._next_least = 0
        self._next_least += 1
        return ordered[self._next_least - 1]

    def next_most(self, can_give: Callable[[int], bool]) -> int | None:
        """Return the most loaded that has something to give; those that have not are left out."""
        ordered, loads = self._sorted, self._loads
        while True:
            if self._next_most < self._most_start:
                if self._most_end <= self._most_start and self._most_start > 0:
                    self._most = loads[ordered[self._most_start - 1]]
                else:
                    self._most -= 1
                while self._most_start > 0 and loads[ordered[self._most_start - 1]] == self._most:
                    self._most_start -= 1
                self._next_most = self._most_end - 1
            if self._next_most < 0:
                return None
            found = ordered[self._next_most]
            self._next_most -= 1
            if can_give(found):
                return found
            # To the end of the range, which is cut off.
            at = self._next_most + 1
            self._most_end -= 1
            ordered[at], ordered[self._most_end] = ordered[self._most_end], found


def _java_order(topic: UUID) -> tuple[int, int]:
    """Return the two halves of an id as Java's signed longs, which Kafka compares."""
    halves = (topic.int >> 64, topic.int & 0xFFFF_FFFF_FFFF_FFFF)
    high, low = (half - (1 << 64) if half >> 63 else half for half in halves)
    return high, low
