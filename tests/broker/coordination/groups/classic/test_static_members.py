"""Static members of a classic group: away, back, and replaced."""

from __future__ import annotations

from moldau.broker.coordination.groups.classic.generations import State
from moldau.broker.coordination.groups.classic.messages import Departure
from moldau.broker.coordination.groups.classic.store import Purpose
from moldau.wire.errors import Error
from tests.broker.coordination.groups.classic.playing import RANGE, SESSION_MS, Table


def static_pair(table: Table) -> tuple[str, str]:
    """Two static members, the first one leading, in a stable group."""
    one = table.join(instance="one").joined.member_id
    two = table.join(instance="two")
    table.join(one, instance="one")
    generation = two.joined.generation
    assignments = {one: b"1", two.joined.member_id: b"2"}
    table.sync(one, generation, assignments, instance_id="one")
    table.sync(two.joined.member_id, generation, instance_id="two")
    assert table.state() is State.STABLE
    return one, two.joined.member_id


def test_a_static_member_that_restarts_gets_its_assignment_without_a_rebalance() -> None:
    table = Table()
    _, two = static_pair(table)
    generation = table.group.generation
    back = table.join(instance="two").joined
    assert (back.error, back.generation, back.skip_assignment) == (Error.NONE, generation, False)
    assert back.member_id != two
    assert table.state() is State.STABLE
    synced = table.sync(back.member_id, generation, instance_id="two").synced
    assert synced.assignment == b"2"
    assert table.heartbeat(two, generation, "two") is Error.FENCED_INSTANCE_ID
    assert table.heartbeat(back.member_id, generation, "two") is Error.NONE
    assert table.sync(two, generation, instance_id="two").synced.error is Error.FENCED_INSTANCE_ID
    assert table.stored[-1].purpose is Purpose.REPLACEMENT


def test_a_static_leader_that_restarts_is_told_to_leave_the_assignment_as_it_is() -> None:
    table = Table()
    one, _ = static_pair(table)
    back = table.join(instance="one").joined
    assert back.skip_assignment
    assert back.leader == back.member_id
    assert len(back.members) == 2
    older = table.join(instance="one", skips=False).joined
    assert not older.skip_assignment
    assert older.leader == back.member_id
    assert older.leader not in (one, older.member_id)
    assert older.members == ()


def test_a_static_member_that_comes_back_otherwise_than_it_was_causes_a_rebalance() -> None:
    table = Table()
    one, _ = static_pair(table)
    back = table.join(instance="two", protocols=(("other", b""), *RANGE))
    assert back.joined.error is Error.NONE
    table.join(one, instance="one", protocols=(("other", b""), *RANGE))
    table.join(back.joined.member_id, instance="two", protocols=(("other", b""), *RANGE))
    assert table.group.protocol == "other"
    table.sync(one, table.group.generation, {}, instance_id="one")
    assert table.state() is State.STABLE
    narrowed = table.join(instance="two", protocols=RANGE)
    assert not narrowed.is_answered
    assert table.state() is State.PREPARING_REBALANCE


def test_a_static_member_that_cannot_be_stored_is_its_old_self() -> None:
    table = Table()
    _, two = static_pair(table)
    generation = table.group.generation
    table.hold_writes = True
    back = table.join(instance="two", protocols=(("range", b"new"),), session_ms=SESSION_MS * 2)
    assert not back.is_answered
    table.finish_writes(Error.COORDINATOR_NOT_AVAILABLE)
    assert back.joined.error is Error.COORDINATOR_NOT_AVAILABLE
    assert table.heartbeat(two, generation, "two") is Error.NONE
    assert table.group.members[two].protocols == RANGE
    assert table.group.members[two].session_timeout_ms == SESSION_MS


def test_a_static_member_may_be_away_during_a_rebalance_but_not_for_ever() -> None:
    table = Table()
    one, two = static_pair(table)
    table.group.members[two].rebalance_timeout_ms = 5_000
    again = table.join(one, (("range", b"changed"),), instance="one", rebalance_ms=5_000)
    table.pass_time(5_000)
    assert [member.member_id for member in again.joined.members] == [one, two]
    table.sync(one, table.group.generation, {one: b"", two: b""}, instance_id="one")
    table.pass_time(5_000)
    assert list(table.group.members) == [one]


def test_when_only_silent_static_members_are_left_the_group_waits_for_their_sessions() -> None:
    table = Table()
    one, two = static_pair(table)
    table.leave(Departure(two, "two"))
    table.pass_time(SESSION_MS)
    assert table.state() is State.EMPTY
    assert table.heartbeat(one, table.group.generation) is Error.UNKNOWN_MEMBER_ID


def test_a_static_member_finds_its_place_in_a_full_group() -> None:
    table = Table(max_size=2)
    static_pair(table)
    assert table.join(instance="two").joined.error is Error.NONE
    assert table.join(instance="three").joined.error is Error.GROUP_MAX_SIZE_REACHED
