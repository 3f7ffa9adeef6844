"""Eligible leader replicas (KIP-966): the rules one by one, and all of them against a model."""

from __future__ import annotations

from moldau.cluster.decisions.elections import (
    Held,
    Loss,
    departed,
    elect,
    in_sync_with,
    knows_elr,
    to_preferred,
)
from moldau.cluster.decisions.reassignment import begun, cancelled, finished
from moldau.cluster.state.changes import BrokerJoined
from moldau.cluster.state.topics import NO_LEADER, BrokerInfo, PartitionState, minimum_isr
from tests.cluster.decisions.eligibility import REPLICAS, cluster, info, never


def always() -> bool:
    return True


def after_return(
    partition: PartitionState, broker: int, held: Held | Loss, *live: int, minimum: int = 2
) -> PartitionState | None:
    if isinstance(held, Loss):
        held = Held(held)
    changes = departed(cluster(partition, *live), broker, lambda *_: held, None, lambda _: minimum)
    return changes[0].partitions[0] if changes else None


def test_who_leaves_below_the_minimum_is_eligible_until_enough_are_in_sync_again() -> None:
    three = PartitionState(REPLICAS, REPLICAS, 0)
    two = elect(three, {0, 1}, never, minimum=2)
    assert two == PartitionState(REPLICAS, (0, 1), 0)
    one = elect(two, {0}, never, minimum=2)
    assert one == PartitionState(REPLICAS, (0,), 0, elr=(1,))
    none = elect(one, (), never, minimum=2)
    assert none == PartitionState(REPLICAS, (0,), NO_LEADER, 1, elr=(1,), last_known_elr=(0,))
    assert elect(none, {2}, never, minimum=2) is None, "who was not in sync last has too little"
    back = elect(none, {1, 2}, never, minimum=2)
    assert back == PartitionState(REPLICAS, (1,), 1, 2, elr=(0,))
    assert in_sync_with(back, 1, (1, 2), 2) == PartitionState(REPLICAS, (1, 2), 1, 2)


def test_a_minimum_above_the_factor_means_all_of_them() -> None:
    assert minimum_isr(3, (0, 1), ()) == 2
    assert minimum_isr(2, (3, 0), (3,)) == 1, "a replica that is being made holds nobody up"
    alone = PartitionState((0,), (0,), 0)
    assert elect(alone, (), never, minimum=5) == PartitionState(
        (0,), (0,), NO_LEADER, 1, last_known_elr=(0,)
    )


def test_who_lost_something_is_eligible_no_more_and_leads_only_if_nobody_else_can() -> None:
    offline = PartitionState(REPLICAS, (), NO_LEADER, 5, elr=(0, 1), last_known_elr=(0,))
    assert after_return(offline, 0, Loss.NONE) is None
    torn = after_return(offline, 0, Loss.TAIL)
    assert torn == PartitionState(REPLICAS, (), NO_LEADER, 5, elr=(1,), last_known_elr=(0,))
    assert elect(torn, {0, 2}, never, minimum=2) is None, "broker 1 may have more"
    assert elect(torn, {0, 1}, never, minimum=2) == PartitionState(REPLICAS, (1,), 1, 6)
    both = after_return(torn, 1, Loss.TAIL, 0)
    assert both is not None
    assert elect(both, {1, 2}, never, minimum=2) is None
    assert elect(both, {0, 1}, never, minimum=2) == PartitionState(REPLICAS, (0,), 0, 6)


def test_who_lost_everything_leads_only_after_all_others() -> None:
    offline = PartitionState(REPLICAS, (), NO_LEADER, 5, elr=(0,), last_known_elr=(0,))
    empty = after_return(offline, 0, Loss.ALL)
    assert empty == PartitionState(REPLICAS, (), NO_LEADER, 5, lost=((0, -1),))
    assert elect(empty, {0, 1, 2}, never, minimum=2) is None
    # Whoever allows an unclean election means to keep what there is.
    assert elect(empty, {0, 1, 2}, always, minimum=2) == PartitionState(
        REPLICAS, (1,), 1, 6, lost=((0, -1),)
    )
    last = elect(empty, {0}, always, minimum=2)
    assert last == PartitionState(REPLICAS, (0,), 0, 6)


def test_who_has_back_what_it_had_is_the_last_leader_again() -> None:
    offline = PartitionState(REPLICAS, (), NO_LEADER, 5, elr=(0,), last_known_elr=(0,))
    empty = after_return(offline, 0, Held(Loss.ALL, 0, 60))
    assert empty == PartitionState(REPLICAS, (), NO_LEADER, 5, lost=((0, 60),))
    # What it holds is still too short, however sure that is, or less is missing than before.
    assert after_return(empty, 0, Held(Loss.NONE, 59)) is None
    assert after_return(empty, 0, Held(Loss.ALL, 20, 59)) is None
    for loss in (Loss.NONE, Loss.TAIL):
        back = after_return(empty, 0, Held(loss, 60))
        assert back == PartitionState(REPLICAS, (), NO_LEADER, 5, last_known_elr=(0,))
        assert elect(back, {0, 1}, never, minimum=2) == PartitionState(REPLICAS, (0,), 0, 6)
    # Others have gone on without it.
    unclean = elect(empty, {1}, always, minimum=2)
    assert unclean is not None
    late = after_return(unclean, 0, Held(Loss.NONE, 60), 1)
    assert late is None


def test_what_was_copied_is_not_taken_for_what_was_put_back() -> None:
    led = PartitionState(REPLICAS, (1,), 1, 5)
    empty = after_return(led, 0, Held(Loss.ALL, 0, 100), 1)
    assert empty == PartitionState(REPLICAS, (1,), 1, 5, lost=((0, -1),))
    # Noted while nobody led, and then somebody did.
    offline = PartitionState(REPLICAS, (1,), NO_LEADER, 5, lost=((0, 100),))
    assert elect(offline, {0, 1}, never, minimum=1) == PartitionState(
        REPLICAS, (1,), 1, 6, lost=((0, -1),)
    )
    # Broker 0 has copied 120 of 500 messages when the leader dies, and comes back without them.
    led = PartitionState(REPLICAS, (1,), 1, 5, lost=((0, 100),))
    assert after_return(led, 0, Held(Loss.NONE, 120), 1) is None
    dead = elect(led, {0}, never, minimum=1)
    assert dead is not None
    both = after_return(dead, 1, Held(Loss.ALL, 0, 500), 0)
    assert both is not None
    assert both.lost == ((0, -1), (1, 500))
    assert after_return(both, 0, Held(Loss.NONE, 120), 1) is None
    assert elect(both, REPLICAS, never, minimum=1) is None
    back = after_return(both, 1, Held(Loss.NONE, 500), 0)
    assert back is not None
    assert back.last_known_elr == (1,), "the last one is still believed"


def test_while_a_broker_does_not_know_of_it_nobody_is_eligible() -> None:
    state = cluster(PartitionState(REPLICAS, (0,), 0), 0)
    assert knows_elr(state)
    state.apply(BrokerJoined(BrokerInfo(1, "localhost", 9093)))
    assert not knows_elr(state)
    sole = PartitionState(REPLICAS, (0, 1), 0, elr=(2,))
    assert elect(sole, {0}, never, minimum=0) == PartitionState(REPLICAS, (0,), 0)
    # As it was before: who was in sync last stays there, though dead.
    assert elect(PartitionState(REPLICAS, (0,), 0), {1}, never, minimum=0) == PartitionState(
        REPLICAS, (0,), NO_LEADER, 1, last_known_elr=(0,)
    )


def test_the_last_in_sync_leads_after_an_upgrade_though_nobody_wrote_down_that_it_led() -> None:
    # As a broker left it that names no last leader.
    offline = PartitionState((0,), (0,), NO_LEADER, 5)
    assert elect(offline, {1}, never, minimum=1) is None
    torn = after_return(offline, 0, Held(Loss.TAIL, 100, kept_elr=False))
    assert torn == PartitionState((0,), (), NO_LEADER, 5, last_known_elr=(0,))
    for minimum in (0, 1):
        assert elect(torn, {0, 1}, never, minimum=minimum) == PartitionState((0,), (0,), 0, 6)
    # Beside a broker that would not see a last leader it stays in sync.
    assert after_return(offline, 0, Loss.TAIL, minimum=0) is None
    assert after_return(offline, 0, Loss.ALL, minimum=0) == PartitionState(
        (0,), (), NO_LEADER, 5, lost=((0, -1),)
    )
    # The others may have more, and the last one who comes back is as good as any.
    two = PartitionState(REPLICAS, (0, 1), NO_LEADER, 5)
    one = PartitionState(REPLICAS, (1,), NO_LEADER, 5)
    known = PartitionState(REPLICAS, (), NO_LEADER, 5, last_known_elr=(1,))
    for minimum, last in ((2, known), (0, None)):
        assert after_return(two, 0, Loss.TAIL, minimum=minimum) == one
        assert after_return(one, 1, Loss.TAIL, 0, minimum=minimum) == last
    # Somebody lost more than an end, and may get it back.
    lost = PartitionState(REPLICAS, (1,), NO_LEADER, 5, lost=((0, 60),))
    assert after_return(lost, 1, Loss.TAIL, 0) == PartitionState(
        REPLICAS, (), NO_LEADER, 5, lost=((0, 60),)
    )


def test_who_is_not_upgraded_yet_leads_again_what_only_it_had() -> None:
    # All who are registered know of eligible replicas, but not the one that is down.
    down = elect(PartitionState(REPLICAS, (2,), 2, 5), {0, 1}, never, minimum=2)
    assert down == PartitionState(REPLICAS, (2,), NO_LEADER, 6, last_known_elr=(2,))
    # The same if it has written the topic meanwhile, without what it does not know.
    for offline in (down, PartitionState(REPLICAS, (2,), NO_LEADER, 6)):
        assert elect(offline, REPLICAS, never, minimum=0) == PartitionState(REPLICAS, (2,), 2, 7)


def test_beside_a_broker_that_does_not_know_of_it_who_is_away_is_in_sync_instead() -> None:
    offline = PartitionState(REPLICAS, (0,), NO_LEADER, 5, elr=(1,), last_known_elr=(0,))
    away = elect(offline, {2}, never, minimum=0)
    assert away == PartitionState(REPLICAS, (0, 1), NO_LEADER, 5, last_known_elr=(0,))
    assert elect(away, {1, 2}, never, minimum=0) == PartitionState(REPLICAS, (1,), 1, 6)
    assert after_return(offline, 1, Loss.NONE, 2, minimum=0) == away
    first = PartitionState(REPLICAS, (0,), NO_LEADER, 5, last_known_elr=(0,))
    assert after_return(offline, 1, Loss.TAIL, 2, minimum=0) == first
    # Who is there already may be one that does not say what it lost.
    assert elect(offline, {1, 2}, never, minimum=0) == first
    led = PartitionState(REPLICAS, (0,), 0, 5, elr=(1,))
    assert elect(led, REPLICAS, never, minimum=0) == PartitionState(REPLICAS, (0,), 0, 5)


def test_who_was_eligible_in_a_life_that_did_not_know_of_it_is_so_no_more() -> None:
    offline = PartitionState(REPLICAS, (0,), NO_LEADER, 5, elr=(1,), last_known_elr=(0,))
    # It may have lost power, or all of its disk, before it was stopped cleanly.
    clean = Held(Loss.NONE, 100, kept_elr=False)
    for minimum in (0, 2):
        after = after_return(offline, 1, clean, minimum=minimum)
        assert after == PartitionState(REPLICAS, (0,), NO_LEADER, 5, last_known_elr=(0,))
    # Not even as the last one. Of who is in sync, every broker says if its disk is another.
    last = PartitionState(REPLICAS, (), NO_LEADER, 5, elr=(1,))
    for held in (clean, Held(Loss.TAIL, 0, kept_elr=False)):
        assert after_return(last, 1, held) == PartitionState(REPLICAS, (), NO_LEADER, 5)
    in_sync = PartitionState(REPLICAS, (1,), NO_LEADER, 5)
    assert after_return(in_sync, 1, clean) is None


def test_moves_and_preferred_elections_keep_who_is_eligible() -> None:
    short = PartitionState((0, 1, 2, 3), (1, 2), 1, elr=(0,), lost=((3, 9),))
    assert to_preferred(short, {0, 1, 2}, 3) is None
    swapped = PartitionState((2, 1, 0), (1, 2), 1, 4, elr=(0,))
    assert to_preferred(swapped, {1, 2}, 3) == PartitionState((2, 1, 0), (1, 2), 2, 5, elr=(0,))
    moving = begun(short, (1, 2, 4), {id: info(id) for id in range(5)})
    assert (moving.elr, moving.lost) == ((0,), ((3, 9),))
    back = cancelled(moving, "t-0", {1, 2}, unclean=False)
    assert (back.replicas, back.elr, back.lost) == ((1, 2, 0, 3), (0,), ((3, 9),))
    arrived = finished(in_sync_with(moving, 1, (1, 2, 4), 3), {1, 2, 4})
    assert arrived == PartitionState((1, 2, 4), (1, 2, 4), 1, 1)
