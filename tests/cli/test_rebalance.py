"""The plan of a rebalance, as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.rebalance import Impossible, Move, Replicas, plan
from moldau.topic_partition import TopicPartition

Partitions = dict[TopicPartition, Replicas]


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Partitions, dict[int, str | None]]:
    """Partitions anywhere on up to six brokers, of which all that are needed are alive."""
    brokers = list(range(draw(st.integers(1, 6))))
    partitions: Partitions = {}
    for topic in range(draw(st.integers(0, 4))):
        factor = draw(st.integers(1, len(brokers)))
        for index in range(draw(st.integers(1, 8))):
            order = draw(st.permutations(brokers))
            partitions[f"topic-{topic}", index] = tuple(order[:factor])
    return partitions, dict.fromkeys(brokers)


def after(partitions: Mapping[TopicPartition, Replicas], moves: list[Move]) -> Partitions:
    return {**partitions, **{move.place: move.new for move in moves}}


def loads(
    partitions: Mapping[TopicPartition, Replicas], brokers: Mapping[int, object]
) -> Counter[int]:
    held = Counter(dict.fromkeys(brokers, 0))
    for replicas in partitions.values():
        held.update(replicas)
    return held


def spread(loads: Counter[int]) -> int:
    return max(loads.values()) - min(loads.values())


def fewest_copies(partitions: Partitions, brokers: Mapping[int, object]) -> int:
    """Brokers above an equal share have to give up what is above it; no plan can do with less."""
    held = sorted(loads(partitions, brokers).values(), reverse=True)
    share, extra = divmod(sum(held), len(held))
    return sum(max(0, load - share - (position < extra)) for position, load in enumerate(held))


@given(layouts())
def test_loads_become_equal_with_the_fewest_copies(
    layout: tuple[Partitions, dict[int, str | None]],
) -> None:
    partitions, brokers = layout
    moves = plan(partitions, brokers)
    result = after(partitions, moves)
    assert all(len(set(replicas)) == len(replicas) for replicas in result.values())
    assert all(len(result[place]) == len(partitions[place]) for place in partitions)
    assert spread(loads(result, brokers)) <= 1
    assert sum(len(move.copies) for move in moves) == fewest_copies(partitions, brokers)


@given(layouts(), st.data())
def test_nothing_stays_on_a_broker_that_leaves(
    layout: tuple[Partitions, dict[int, str | None]], data: st.DataObject
) -> None:
    partitions, brokers = layout
    most = max((len(replicas) for replicas in partitions.values()), default=1)
    leaving = data.draw(st.sets(st.sampled_from(list(brokers)), max_size=len(brokers) - most))
    result = after(partitions, plan(partitions, brokers, leaving))
    staying = brokers.keys() - leaving
    assert all(set(replicas) <= staying for replicas in result.values())
    assert all(len(set(replicas)) == len(replicas) for replicas in result.values())
    assert spread(loads(result, dict.fromkeys(staying))) <= 1


@given(layouts())
def test_a_cluster_that_was_rebalanced_needs_no_more(
    layout: tuple[Partitions, dict[int, str | None]],
) -> None:
    partitions, brokers = layout
    assert plan(after(partitions, plan(partitions, brokers)), brokers) == []


@given(layouts())
def test_leadership_is_shared_as_far_as_the_replicas_allow(
    layout: tuple[Partitions, dict[int, str | None]],
) -> None:
    partitions, brokers = layout
    result = after(partitions, plan(partitions, brokers))
    led = Counter(dict.fromkeys(brokers, 0))
    led.update(replicas[0] for replicas in result.values())
    for replicas in result.values():
        # Else handing this partition on would have made the two more equal.
        assert all(led[replicas[0]] - led[other] <= 1 for other in replicas)


def test_a_fourth_broker_takes_its_share_and_the_rest_stays_put() -> None:
    partitions = {("orders", i): tuple((i + k) % 3 for k in range(3)) for i in range(8)}
    moves = plan(partitions, dict.fromkeys(range(4)))
    result = after(partitions, moves)
    assert sorted(loads(result, dict.fromkeys(range(4))).values()) == [6, 6, 6, 6]
    assert sum(len(move.copies) for move in moves) == 6
    assert {broker for move in moves for broker in move.copies} == {3}


def test_every_topic_gives_some_to_the_new_broker() -> None:
    partitions = {(topic, i): (i % 2,) for topic in ("a", "b", "c") for i in range(6)}
    result = after(partitions, plan(partitions, dict.fromkeys(range(3))))
    for topic in ("a", "b", "c"):
        assert sum(replicas == (2,) for (name, _), replicas in result.items() if name == topic) == 2


def test_replicas_stay_in_different_racks() -> None:
    brokers: dict[int, str | None] = {0: "east", 1: "west", 2: "east", 3: "west"}
    partitions: Partitions = {("orders", i): (0, 1) for i in range(8)}
    result = after(partitions, plan(partitions, brokers))
    assert spread(loads(result, brokers)) == 0
    for replicas in result.values():
        assert {brokers[broker] for broker in replicas} == {"east", "west"}


def test_too_few_brokers_for_the_replicas_are_refused() -> None:
    with pytest.raises(Impossible, match="orders-0 has 3 replicas, but only 2 brokers"):
        plan({("orders", 0): (0, 1, 2)}, dict.fromkeys(range(3)), leaving=[2])
    with pytest.raises(Impossible, match="no broker"):
        plan({}, {0: None}, leaving=[0])
