"""Consumer groups on values: who is refused what, and what becomes of the others."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from moldau.broker.coordination.groups.consumer.messages import HeartbeatAnswer
from moldau.broker.coordination.groups.consumer.parts import MemberState
from moldau.broker.coordination.groups.group import Commit
from moldau.broker.coordination.groups.report import Cause
from moldau.wire.errors import Error
from tests.broker.coordination.groups.consumer.playing import (
    REBALANCE_MS,
    SESSION_MS,
    Table,
)

T = frozenset(("t",))


def seated(partitions: int = 4, **limits: Any) -> tuple[Table, UUID]:
    table = Table(**limits)
    return table, table.topics.create("t", partitions)


def ok(answer: HeartbeatAnswer) -> HeartbeatAnswer:
    assert answer.error is Error.NONE, answer
    return answer


def test_the_first_member_gets_everything_in_the_first_epoch() -> None:
    table, t = seated()
    answer = ok(table.join("m", T))
    assert (answer.epoch, answer.assignment) == (2, {t: frozenset(range(4))})
    assert table.group.state_name == "Stable"
    quiet = ok(table.beat("m", 2))
    assert quiet.assignment is None


def test_only_who_has_what_it_shall_have_is_answered_the_short_way() -> None:
    table, _ = seated()
    ok(table.join("a", T))
    ok(table.beat("a", 2))
    assert table.steady_beats == 1
    ok(table.join("b", T))
    kept = ok(table.beat("a", 2)).assignment
    assert kept is not None
    ok(table.beat("b", 3))
    ok(table.beat("a", 2, owned=kept))
    ok(table.beat("b", 3))
    assert table.steady_beats == 1
    ok(table.beat("a", 3))
    ok(table.beat("b", 3))
    assert table.steady_beats == 3
    # A topic that grows is seen at the next heartbeat.
    table.topics.grow("t", 1)
    ok(table.beat("a", 3))
    assert table.steady_beats == 3
    # And who was answered so is not silent.
    table, _ = seated()
    ok(table.join("a", T))
    for _ in range(4):
        table.turn(SESSION_MS // 2)
        ok(table.beat("a", 2))
    assert table.steady_beats == 4


def test_a_second_member_gets_its_share_once_the_first_has_given_it_up() -> None:
    table, t = seated()
    ok(table.join("a", T))
    second = ok(table.join("b", T))
    assert (second.epoch, second.assignment) == (3, {})
    assert table.consumer.state.current("b").state is MemberState.UNRELEASED_PARTITIONS
    told = ok(table.beat("a", 2))
    assert told.epoch == 2
    assert told.assignment is not None
    kept = told.assignment[t]
    assert len(kept) == 2
    # Nothing is free until the first one says so.
    assert ok(table.beat("b", 3)).assignment is None
    assert ok(table.beat("a", 2, owned={t: frozenset(range(4))})).epoch == 2
    assert ok(table.beat("b", 3)).assignment is None
    assert ok(table.beat("a", 2, owned={t: kept})).epoch == 3
    got = ok(table.beat("b", 3)).assignment
    assert got == {t: frozenset(range(4)) - kept}
    assert table.group.state_name == "Stable"


def test_who_does_not_give_up_its_partitions_in_time_is_fenced() -> None:
    table, t = seated()
    ok(table.join("a", T))
    ok(table.join("b", T))
    ok(table.beat("a", 2))
    for _ in range(4):
        table.beat("a", 2)
        ok(table.beat("b", 3))
        table.turn(REBALANCE_MS // 4)
    assert "a" not in table.consumer.members
    assert ok(table.beat("b", 3)).assignment == {t: frozenset(range(4))}
    assert table.beat("a", 2).error is Error.UNKNOWN_MEMBER_ID
    assert Cause.STUCK in table.reports[-1].reasons.counts


def test_who_is_silent_for_a_session_timeout_is_removed() -> None:
    table, t = seated()
    ok(table.join("a", T))
    table.turn(SESSION_MS - 1)
    assert "a" in table.consumer.members
    ok(table.beat("a", 2))
    table.turn(SESSION_MS)
    assert table.group.state_name == "Empty"
    assert table.beat("a", 2).error is Error.UNKNOWN_MEMBER_ID
    assert ok(table.join("b", T)).assignment == {t: frozenset(range(4))}


def test_epochs_out_of_order_are_fenced_and_a_lost_answer_is_not() -> None:
    table, t = seated()
    ok(table.join("a", T))
    ok(table.join("b", T))
    ok(table.beat("a", 2, owned={}))
    current = table.consumer.state.current("a")
    assert (current.epoch, current.previous_epoch) == (3, 2)
    assert table.beat("a", 4).error is Error.FENCED_MEMBER_EPOCH
    # Without its partitions it cannot be told apart from one that has others.
    assert table.beat("a", 2).error is Error.FENCED_MEMBER_EPOCH
    assert table.beat("a", 2, owned={t: frozenset((0, 1, 2, 3))}).error is Error.FENCED_MEMBER_EPOCH
    assert ok(table.beat("a", 2, owned={})).epoch == 3
    assert table.beat("nobody", 2).error is Error.UNKNOWN_MEMBER_ID
    assert set(table.consumer.members) == {"a", "b"}


def test_a_member_that_lies_about_what_it_has_harms_nobody() -> None:
    table, t = seated()
    ok(table.join("a", T))
    other = UUID(int=99)
    ok(table.beat("a", 2, owned={t: frozenset((0, 17)), other: frozenset((1,))}))
    assert table.consumer.state.owners == {t: dict.fromkeys(range(4), "a")}


def test_static_members_come_back_to_what_they_had() -> None:
    table, t = seated()
    ok(table.join("a", T, instance_id="i"))
    assert table.join("b", T, instance_id="i").error is Error.UNRELEASED_INSTANCE_ID
    assert table.beat("b", 2, instance_id="i").error is Error.FENCED_INSTANCE_ID
    assert table.beat("b", -2, instance_id="x").error is Error.UNKNOWN_MEMBER_ID
    assert ok(table.beat("a", -2, instance_id="i")).epoch == -2
    epoch = table.consumer.state.epoch.epoch
    back = ok(table.join("b", T, instance_id="i"))
    assert (back.epoch, back.assignment) == (epoch, {t: frozenset(range(4))})
    assert set(table.consumer.members) == {"b"}
    assert ok(table.beat("b", -1, instance_id="i")).epoch == -1
    assert table.group.state_name == "Empty"


def test_a_static_member_that_does_not_come_back_is_removed_with_its_session() -> None:
    table, _ = seated()
    ok(table.join("a", T, instance_id="i"))
    ok(table.beat("a", -2, instance_id="i"))
    table.turn(SESSION_MS)
    assert not table.consumer.members


def test_topics_that_come_grow_and_go_are_noticed_at_the_next_heartbeat() -> None:
    table, t = seated(1)
    both = frozenset(("t", "u"))
    assert ok(table.join("a", both)).assignment == {t: frozenset((0,))}
    u = table.topics.create("u", 2)
    answer = ok(table.beat("a", 2))
    assert (answer.epoch, answer.assignment) == (3, {t: frozenset((0,)), u: frozenset((0, 1))})
    table.topics.grow("t", 1)
    answer = ok(table.beat("a", 3))
    assert answer.assignment == {t: frozenset((0, 1)), u: frozenset((0, 1))}
    table.topics.delete("t")
    answer = ok(table.beat("a", 4))
    assert answer.assignment == {u: frozenset((0, 1))}
    table.topics.version += 1
    assert ok(table.beat("a", answer.epoch, owned={u: frozenset((0, 1))})).epoch == 5
    assert table.consumer.state.epoch.epoch == 5
    assert Cause.TOPICS_CHANGED in table.reports[-1].reasons.counts


def test_regular_expressions_follow_the_topics_that_match() -> None:
    table, t = seated(1)
    first = ok(table.join("a", frozenset(), regex="t.*"))
    assert (first.epoch, first.assignment) == (1, {})
    found = ok(
        table.beat("a", 0, topics=frozenset(), regex="t.*", owned={}, rebalance_timeout_ms=9)
    )
    assert found.assignment == {t: frozenset((0,))}
    also = table.topics.create("t2", 1)
    table.topics.create("x", 1)
    table.turn(10_000)
    ok(table.beat("a", found.epoch))
    assert ok(table.beat("a", found.epoch)).assignment == {
        t: frozenset((0,)),
        also: frozenset((0,)),
    }
    assert ok(table.beat("a", -1)).epoch == -1
    assert not table.consumer.state.regexes


def test_assignments_are_made_no_more_often_than_the_interval() -> None:
    table, _ = seated(assignment_interval_ms=1_000)
    ok(table.join("a", T))
    answer = ok(table.join("b", T))
    assert (answer.epoch, table.group.state_name) == (2, "Assigning")
    # It need not wait for as long as between two heartbeats.
    assert answer.interval_ms == 1_000
    table.turn(400)
    assert ok(table.beat("b", 2)).interval_ms == 600
    table.turn(600)
    found = ok(table.beat("b", 2))
    assert found.epoch == 3
    assert found.interval_ms == table.consumer.limits().heartbeat_interval_ms > 1_000


def test_the_most_members_that_fit_and_no_more() -> None:
    table, _ = seated(max_size=1)
    ok(table.join("a", T))
    assert table.join("b", T).error is Error.GROUP_MAX_SIZE_REACHED
    assert ok(table.join("a", T)).epoch == 2


@pytest.mark.parametrize(
    ("member", "generation", "partition", "version", "error"),
    [
        ("b", 3, 0, 9, Error.NONE),
        ("b", 4, 0, 9, Error.STALE_MEMBER_EPOCH),
        ("a", 2, 0, 9, Error.NONE),
        ("a", 1, 0, 9, Error.STALE_MEMBER_EPOCH),
        ("b", 2, 0, 9, Error.STALE_MEMBER_EPOCH),
        ("b", 3, 0, 8, Error.UNSUPPORTED_VERSION),
        ("x", 3, 0, 9, Error.UNKNOWN_MEMBER_ID),
        ("", -1, 0, 9, Error.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits_count_in_every_epoch_since_the_partition_was_assigned(
    member: str, generation: int, partition: int, version: int, error: Error
) -> None:
    table, t = seated()
    ok(table.join("a", T))
    ok(table.join("b", T))
    kept = ok(table.beat("a", 2)).assignment
    assert kept is not None
    ok(table.beat("a", 2, owned=kept))
    ok(table.beat("b", 3))
    # The first one is in epoch 3 and has kept two partitions since epoch 2.
    partition = min(kept[t]) if member == "a" else min(set(range(4)) - kept[t])
    commit = Commit(member, None, generation, [("t", partition)], version)
    assert table.group.check_commit(commit, table.now) is error
    expected = {0: Error.NONE, 1: Error.STALE_MEMBER_EPOCH}
    for place, answer in expected.items():
        assert table.group.check_fetch("a", 3 - place) is answer


def test_an_epoch_is_over_once_there_is_nothing_more_to_give_up() -> None:
    """Kafka lets it go on, too (KAFKA-19974), and its commits count for every partition."""
    table, t = seated()
    ok(table.join("a", T))
    ok(table.join("b", T))
    kept = ok(table.beat("a", 2)).assignment
    assert kept is not None
    for name in ("c", "d"):
        ok(table.join(name, T))
    still = ok(table.beat("a", 2, owned=kept))
    assert still.assignment is not None
    assert (still.epoch, len(kept[t]), len(still.assignment[t])) == (2, 2, 1)
    # What it has given up is others' by now.
    for name, epoch in (("b", 3), ("c", 4), ("d", 5)):
        ok(table.beat(name, epoch))
    freed = set(range(4)) - kept[t]
    assert all(table.consumer.state.owner(t, partition) in ("b", "c", "d") for partition in freed)

    def commit(epoch: int, partition: int) -> Error:
        return table.group.check_commit(Commit("a", None, epoch, [("t", partition)], 9), table.now)

    assert {commit(2, partition) for partition in range(4)} == {Error.NONE}
    assert ok(table.beat("a", 2, owned=still.assignment)).epoch == 5
    gone = set(range(4)) - still.assignment[t]
    assert {commit(2, partition) for partition in gone} == {Error.STALE_MEMBER_EPOCH}
    assert {commit(2, partition) for partition in still.assignment[t]} == {Error.NONE}


def test_a_write_that_is_refused_changes_nothing() -> None:
    table, t = seated()
    ok(table.join("a", T))
    state = table.consumer.state
    before = (state.epoch, dict(state.members), dict(state.currents), dict(state.targets))
    table.refuses_next = True
    assert table.join("b", T).error is Error.COORDINATOR_NOT_AVAILABLE
    assert before == (state.epoch, dict(state.members), dict(state.currents), dict(state.targets))
    assert ok(table.join("b", T)).epoch == 3
    assert state.owners[t].keys() == set(range(4))


def test_every_prefix_of_the_log_is_a_state_that_clients_can_go_on_from() -> None:
    table, t = seated()
    for step in range(3):
        ok(table.join(f"m{step}", T, instance_id=f"i{step}"))
        for id in list(table.consumer.members):
            epoch = table.consumer.state.current(id).epoch
            told = table.beat(id, epoch, owned={}, topics=T, rebalance_timeout_ms=1)
            table.beat(id, told.epoch, owned=told.assignment or {})
    ok(table.beat("m1", -1, instance_id="i1"))
    ok(table.beat("m0", -2, instance_id="i0"))
    ok(table.join("m9", T, instance_id="i0"))
    whole = list(table.log)
    for end in range(len(whole) + 1):
        table.log = whole[:end]
        table.reload()
        table.now += SESSION_MS * 2
        for id, member in list(table.consumer.members.items()):
            ok(table.join(id, T, instance_id=member.instance_id))
        for _ in range(4):
            for id in list(table.consumer.members):
                current = table.consumer.state.current(id)
                owned = {topic: frozenset(has) for topic, has in current.assigned.items()}
                ok(table.beat(id, current.epoch, owned=owned))
        if table.consumer.members:
            assert table.consumer.state.owners[t].keys() == set(range(4)), end
