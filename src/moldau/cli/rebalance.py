"""Rebalancing: which replicas to move so that the brokers carry equal loads, as a plan."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from moldau.topic_partition import TopicPartition

Replicas = tuple[int, ...]


class Impossible(ValueError):
    """There is no such plan; the message says why."""


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's replicas, as they are and as they shall be; the first is to lead."""

    place: TopicPartition
    old: Replicas
    new: Replicas

    @property
    def copies(self) -> frozenset[int]:
        """The brokers that have to copy the partition's data."""
        return frozenset(self.new) - frozenset(self.old)


def plan(
    partitions: Mapping[TopicPartition, Replicas],
    brokers: Mapping[int, str | None],
    leaving: Collection[int] = (),
) -> list[Move]:
    """Return the moves that leave all staying brokers with as many replicas as each other, give or
    take one, and likewise as many partitions to lead as the replicas allow.

    `brokers` are those alive, with their racks. Replicas leave brokers that are `leaving` and those
    that do not exist; otherwise as few as possible are copied. No partition ends up in fewer racks
    than it can help, even if the loads then stay uneven. Which broker leads costs no copying and is
    decided last.
    """
    targets = {broker: rack for broker, rack in brokers.items() if broker not in leaving}
    if not targets:
        raise Impossible("no broker would be left")
    for (topic, index), replicas in partitions.items():
        if len(replicas) > len(targets):
            raise Impossible(
                f"{topic}-{index} has {len(replicas)} replicas, but only "
                f"{len(targets)} brokers would be left"
            )
    layout = _Layout(partitions, targets)
    layout.evacuate()
    layout.even_out()
    layout.share_leadership()
    return [
        Move(place, tuple(old), layout.replicas(place))
        for place, old in sorted(partitions.items())
        if layout.replicas(place) != tuple(old)
    ]


class _Layout:
    """The positions of all replicas while the plan is made."""

    def __init__(
        self, partitions: Mapping[TopicPartition, Replicas], targets: Mapping[int, str | None]
    ) -> None:
        self._targets = targets
        self._original = {place: frozenset(replicas) for place, replicas in partitions.items()}
        self._now = {place: list(partitions[place]) for place in sorted(partitions)}
        self._held: dict[int, set[TopicPartition]] = {broker: set() for broker in targets}
        self._of_topic: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for place, replicas in self._now.items():
            for broker in replicas:
                if broker in self._held:
                    self._held[broker].add(place)
                    self._of_topic[broker][place[0]] += 1

    def replicas(self, place: TopicPartition) -> Replicas:
        return tuple(self._now[place])

    def evacuate(self) -> None:
        """Each replica on a broker that does not stay goes to the least loaded that can take it."""
        for place, replicas in self._now.items():
            for source in [broker for broker in replicas if broker not in self._targets]:
                free = [broker for broker in self._targets if broker not in replicas]
                best = min(
                    free,
                    key=lambda broker: (
                        -self._racks_after(place, source, broker),
                        len(self._held[broker]),
                        self._of_topic[broker][place[0]],
                        broker,
                    ),
                )
                self._move(place, source, best)

    def even_out(self) -> None:
        """Move replicas from the fullest broker to the emptiest, while they differ by more than
        one.
        """
        while (step := self._next_step()) is not None:
            self._move(*step)

    def _next_step(self) -> tuple[TopicPartition, int, int] | None:
        by_load = sorted(self._targets, key=lambda broker: (len(self._held[broker]), broker))
        for source in reversed(by_load):
            for target in by_load:
                if len(self._held[source]) - len(self._held[target]) <= 1:
                    break
                place = self._best_to_move(source, target)
                if place is not None:
                    return place, source, target
        return None

    def _best_to_move(self, source: int, target: int) -> TopicPartition | None:
        """Choose the cheapest move: first what has to be copied anyway, then of the topic that is
        spread most unevenly between the two.
        """
        candidates = [
            place
            for place in self._held[source] - self._held[target]
            if self._racks_after(place, source, target) >= self._racks_after(place, source, source)
        ]

        def cost(place: TopicPartition) -> tuple[bool, bool, int, TopicPartition]:
            topic = place[0]
            return (
                source in self._original[place],
                target not in self._original[place],
                self._of_topic[target][topic] - self._of_topic[source][topic],
                place,
            )

        return min(candidates, key=cost, default=None)

    def share_leadership(self) -> None:
        """Hand the first place on, along chains of brokers if need be, from who has too many."""
        while True:
            led = Counter(replicas[0] for replicas in self._now.values())
            by_count = sorted(self._targets, key=lambda broker: (-led[broker], broker))
            for source in by_count:
                chain = self._chain(source, {b for b in by_count if led[source] - led[b] > 1})
                if chain:
                    for place, broker in chain:
                        replicas = self._now[place]
                        at = replicas.index(broker)
                        replicas[0], replicas[at] = replicas[at], replicas[0]
                    break
            else:
                return

    def _chain(self, source: int, targets: set[int]) -> list[tuple[TopicPartition, int]]:
        """Return who should lead what instead, so that in the end one of `targets` leads one
        more."""
        if not targets:
            return []
        led_by: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for place, replicas in self._now.items():
            led_by[replicas[0]].append(place)
        reached: dict[int, tuple[int, TopicPartition]] = {}
        edge = [source]
        while edge:
            broker = edge.pop(0)
            if broker in targets:
                chain = []
                while broker != source:
                    previous, place = reached[broker]
                    chain.append((place, broker))
                    broker = previous
                return chain
            for place in led_by[broker]:
                for other in self._now[place][1:]:
                    if other != source and other not in reached:
                        reached[other] = (broker, place)
                        edge.append(other)
        return []

    def _racks_after(self, place: TopicPartition, source: int, target: int) -> int:
        brokers = {target if broker == source else broker for broker in self._now[place]}
        # A broker without a rack stands alone.
        return len({self._targets.get(broker) or broker for broker in brokers})

    def _move(self, place: TopicPartition, source: int, target: int) -> None:
        replicas = self._now[place]
        replicas[replicas.index(source)] = target
        self._held[target].add(place)
        self._of_topic[target][place[0]] += 1
        if source in self._held:
            self._held[source].discard(place)
            self._of_topic[source][place[0]] -= 1
