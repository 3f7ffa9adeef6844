"""The state machine of a group, on values."""

from __future__ import annotations

import pytest

from moldau.broker.coordination.deadlines import NEVER
from moldau.broker.coordination.groups.classic.generations import NEW_MEMBER_TIMEOUT_MS, State
from moldau.broker.coordination.groups.classic.messages import Departure, JoinedMember
from moldau.broker.coordination.groups.classic.store import Purpose
from moldau.broker.coordination.groups.group import Commit
from moldau.broker.coordination.groups.records import GroupMetadata, MemberMetadata
from moldau.wire.errors import Error
from tests.broker.coordination.groups.classic.playing import RANGE, REBALANCE_MS, SESSION_MS, Table


def commit(member: str, generation: int) -> Commit:
    return Commit(member, None, generation, (), 9)


def test_the_first_member_leads_a_generation_of_its_own_at_once() -> None:
    table = Table()
    joined = table.join(client="a").joined
    assert (joined.error, joined.generation, joined.leader) == (Error.NONE, 1, "a-1")
    assert joined.members == (JoinedMember("a-1", None, b"subscription"),)
    assert table.state() is State.COMPLETING_REBALANCE

    synced = table.sync("a-1", 1, {"a-1": b"all"}).synced
    assert (synced.error, synced.assignment, synced.protocol) == (Error.NONE, b"all", "range")
    assert table.state() is State.STABLE
    assert [store.purpose for store in table.stored] == [Purpose.ASSIGNMENT]
    assert table.stored[0].metadata.members[0].assignment == b"all"


def test_a_newcomer_waits_until_the_others_have_rejoined() -> None:
    table = Table()
    (first,) = table.stable("a")
    newcomer = table.join(client="b")
    assert not newcomer.is_answered
    assert table.heartbeat(first, 1) is Error.REBALANCE_IN_PROGRESS
    again = table.join(first)
    assert again.joined.generation == newcomer.joined.generation == 2
    assert [member.member_id for member in again.joined.members] == [first, "b-2"]
    assert newcomer.joined.members == ()
    assert newcomer.joined.leader == first


def test_followers_wait_for_the_leader_to_bring_the_assignment() -> None:
    table = Table()
    first, second = table.stable("a", "b")
    tickets = [table.join(first, (("range", b"changed"),)), table.join(second)]
    generation = tickets[0].joined.generation
    follower = table.sync(second, generation)
    assert not follower.is_answered
    leader = table.sync(first, generation, {first: b"1", second: b"2", "nobody": b"3"})
    assert (leader.synced.assignment, follower.synced.assignment) == (b"1", b"2")


def test_a_member_that_the_leader_leaves_out_gets_nothing() -> None:
    table = Table()
    first, second = table.stable("a", "b")
    table.join(first, (("range", b"changed"),))
    generation = table.join(second).joined.generation
    assert table.sync(first, generation, {"nobody": b"everything"}).synced.assignment == b""
    assert table.sync(second, generation, {second: b"I say so"}).synced.assignment == b""


def test_who_is_new_gets_an_id_first_and_joins_with_it() -> None:
    table = Table()
    refused = table.join(client="a", old=False).joined
    assert (refused.error, refused.member_id) == (Error.MEMBER_ID_REQUIRED, "a-1")
    assert table.state() is State.EMPTY
    assert not table.group.is_forgettable
    assert table.join("a-1", old=False).joined.error is Error.NONE
    assert table.join("made-up").joined.error is Error.UNKNOWN_MEMBER_ID


def test_an_id_that_nobody_joins_with_holds_a_rebalance_up_no_longer_than_a_session() -> None:
    table = Table()
    (first,) = table.stable("a")
    table.join(client="b", old=False)
    again = table.join(first, (("range", b"changed"),))
    assert not again.is_answered
    table.pass_time(SESSION_MS)
    assert again.joined.generation == 2
    assert not table.group.pending


def test_a_member_that_sends_no_heartbeats_is_out_after_its_session_timeout() -> None:
    table = Table()
    first, second = table.stable("a", "b")
    generation = table.group.generation
    table.pass_time(SESSION_MS - 1)
    assert table.heartbeat(second, generation) is Error.NONE
    table.pass_time(1)
    assert list(table.group.members) == [second]
    assert table.heartbeat(first, generation) is Error.UNKNOWN_MEMBER_ID
    assert table.heartbeat(second, generation) is Error.REBALANCE_IN_PROGRESS
    assert table.join(second).joined.leader == second


def test_a_member_that_does_not_rejoin_is_out_after_the_rebalance_timeout() -> None:
    table = Table()
    first, second = table.stable("a", "b")
    generation = table.group.generation
    again = table.join(first, (("range", b"changed"),))
    for _ in range(REBALANCE_MS // 5_000 - 1):
        table.pass_time(5_000)
        assert table.heartbeat(second, generation) is Error.REBALANCE_IN_PROGRESS
        assert not again.is_answered
    table.pass_time(5_000)
    assert again.joined.generation == generation + 1
    assert list(table.group.members) == [first]


def test_a_member_that_never_syncs_is_out_and_the_others_go_on() -> None:
    table = Table()
    first, second = table.stable("a", "b")
    table.join(first, (("range", b"changed"),))
    generation = table.join(second).joined.generation
    table.sync(first, generation, {first: b"1", second: b"2"})
    assert table.state() is State.STABLE
    for _ in range(REBALANCE_MS // 5_000):
        table.pass_time(5_000)
        table.heartbeat(first, generation)
        table.heartbeat(second, generation)
    assert list(table.group.members) == [first]
    assert table.heartbeat(first, generation) is Error.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_syncs_keeps_nobody_waiting_for_ever() -> None:
    table = Table()
    first, second = table.stable("a", "b")
    table.join(first, (("range", b"changed"),))
    generation = table.join(second).joined.generation
    follower = table.sync(second, generation)
    for _ in range(REBALANCE_MS // 5_000):
        assert not follower.is_answered
        table.pass_time(5_000)
        table.heartbeat(first, generation)
    assert follower.synced.error is Error.REBALANCE_IN_PROGRESS
    assert table.join(second).joined.leader == second


def test_a_new_member_whose_client_gave_up_is_not_waited_for_for_ever() -> None:
    table = Table()
    (first,) = table.stable("a")
    newcomer = table.join(client="b", rebalance_ms=10 * NEW_MEMBER_TIMEOUT_MS)
    generation = table.group.generation
    for _ in range(NEW_MEMBER_TIMEOUT_MS // 5_000):
        table.pass_time(5_000)
        table.heartbeat(first, generation)
    assert newcomer.joined.error is Error.UNKNOWN_MEMBER_ID
    assert table.join(first).joined.error is Error.NONE


def test_the_last_to_leave_empties_the_group() -> None:
    table = Table()
    (first,) = table.stable("a")
    assert table.leave(first) == [Error.NONE]
    assert table.state() is State.EMPTY
    assert table.group.generation == 2
    assert table.stored[-1].purpose is Purpose.EMPTY
    assert table.group.due_at > table.now
    table.pass_time(SESSION_MS)
    assert table.group.due_at == NEVER


def test_several_leave_with_one_rebalance() -> None:
    table = Table()
    first, second, third = table.stable("a", "b", "c")
    generation = table.group.generation
    errors = table.leave(first, "nobody", second)
    assert errors == [Error.NONE, Error.UNKNOWN_MEMBER_ID, Error.NONE]
    assert table.join(third).joined.generation == generation + 1


def test_an_operator_removes_a_static_member_by_its_instance_id() -> None:
    table = Table()
    table.join(instance="one")
    errors = table.leave(Departure("", "one"), Departure("", "two"), Departure("wrong", "one"))
    assert errors == [Error.NONE, Error.UNKNOWN_MEMBER_ID, Error.UNKNOWN_MEMBER_ID]


def test_an_old_generation_and_a_stranger_are_refused() -> None:
    table = Table()
    (first,) = table.stable("a")
    table.leave(first)
    (second,) = table.stable("b")
    assert table.heartbeat(second, 1) is Error.ILLEGAL_GENERATION
    assert table.sync(second, 1).synced.error is Error.ILLEGAL_GENERATION
    assert table.heartbeat(first, 3) is Error.UNKNOWN_MEMBER_ID
    assert table.sync(first, 3).synced.error is Error.UNKNOWN_MEMBER_ID
    assert table.group.check_commit(commit(second, 1), 0) is Error.ILLEGAL_GENERATION
    assert table.group.check_commit(commit(first, 3), 0) is Error.UNKNOWN_MEMBER_ID
    assert table.group.check_commit(commit("", -1), 0) is Error.UNKNOWN_MEMBER_ID
    assert table.group.check_commit(commit(second, 3), 0) is Error.NONE


def test_commits_wait_for_the_assignment_but_not_for_a_rebalance_to_begin() -> None:
    table = Table()
    (first,) = table.stable("a")
    table.join(client="b")
    assert table.group.check_commit(commit(first, 1), table.now) is Error.NONE
    table.join(first)
    assert table.group.check_commit(commit(first, 2), table.now) is Error.REBALANCE_IN_PROGRESS


def test_the_protocol_with_the_most_votes_among_the_common_ones_is_chosen() -> None:
    table = Table(initial_delay_ms=100)
    a = table.join(protocols=(("x", b""), ("sticky", b""), ("range", b"")))
    table.join(protocols=(("range", b""), ("sticky", b"")))
    table.join(protocols=(("range", b""), ("sticky", b""), ("y", b"")))
    refused = table.join(protocols=(("x", b""), ("y", b"")))
    assert refused.joined.error is Error.INCONSISTENT_GROUP_PROTOCOL
    table.pass_time(1_000)
    assert a.joined.protocol == "range"


def test_a_group_takes_only_its_own_kind() -> None:
    table = Table()
    assert table.join(protocol_type="").joined.error is Error.INCONSISTENT_GROUP_PROTOCOL
    assert table.join(protocols=()).joined.error is Error.INCONSISTENT_GROUP_PROTOCOL
    (first,) = table.stable("a")
    other = table.join(protocol_type="connect")
    assert other.joined.error is Error.INCONSISTENT_GROUP_PROTOCOL
    wrong = table.sync(first, 1, protocol_type="connect")
    assert wrong.synced.error is Error.INCONSISTENT_GROUP_PROTOCOL
    assert table.heartbeat(first, 1) is Error.NONE
    table.leave(first)
    assert table.join(protocol_type="connect").joined.error is Error.NONE


def test_a_protocol_that_is_named_twice_counts_once() -> None:
    table = Table()
    assert table.join(protocols=(*RANGE, *RANGE)).joined.protocol == "range"
    assert table.join(client="b").answers == []


def test_the_leader_can_ask_for_another_assignment() -> None:
    table = Table()
    first, second = table.stable("a", "b")
    generation = table.group.generation
    same = table.join(second).joined
    assert (same.generation, same.members) == (generation, ())
    assert table.state() is State.STABLE
    again = table.join(first)
    assert not again.is_answered
    assert table.join(second).joined.generation == again.joined.generation == generation + 1


def test_who_missed_the_answer_to_its_join_gets_it_again() -> None:
    table = Table()
    joined = table.join(client="a").joined
    assert table.join(joined.member_id).joined == joined


def test_a_request_that_is_repeated_replaces_the_one_that_waits() -> None:
    table = Table()
    first, second = table.stable("a", "b")
    lost = table.join(first, (("range", b"changed"),))
    kept = table.join(first, (("range", b"changed"),))
    assert lost.joined.error is Error.COORDINATOR_NOT_AVAILABLE
    generation = table.join(second).joined.generation
    assert kept.joined.error is Error.NONE
    lost = table.sync(second, generation)
    kept = table.sync(second, generation)
    assert lost.synced.error is Error.REBALANCE_IN_PROGRESS
    table.sync(first, generation, {second: b"2"})
    assert kept.synced.assignment == b"2"


def test_an_assignment_that_cannot_be_stored_is_given_to_nobody() -> None:
    table = Table()
    table.hold_writes = True
    member = table.join().joined.member_id
    waiting = table.sync(member, 1, {member: b"all"})
    assert not waiting.is_answered
    table.finish_writes(Error.NOT_COORDINATOR)
    assert waiting.synced.error is Error.NOT_COORDINATOR
    assert table.group.members[member].assignment == b""
    assert table.join(member).joined.generation == 2


def test_an_assignment_that_is_stored_too_late_has_no_effect() -> None:
    table = Table()
    table.hold_writes = True
    member = table.join().joined.member_id
    waiting = table.sync(member, 1, {member: b"all"})
    newcomer = table.join(client="b")
    assert waiting.synced.error is Error.REBALANCE_IN_PROGRESS
    table.finish_writes()
    assert table.state() is State.PREPARING_REBALANCE
    assert table.join(member).joined.generation == newcomer.joined.generation == 2


def test_a_full_group_takes_nobody_else() -> None:
    table = Table(max_size=2)
    first, second = table.stable("a", "b")
    assert table.join(client="c").joined.error is Error.GROUP_MAX_SIZE_REACHED
    assert table.state() is State.STABLE
    assert table.heartbeat(first, table.group.generation) is Error.NONE
    table.leave(second)
    third = table.join(client="c")
    assert table.join(first).joined.generation == third.joined.generation


def test_ids_that_nobody_joins_with_do_not_pile_up() -> None:
    table = Table()
    for _ in range(10_005):
        table.join(old=False, session_ms=1_800_000)
    assert len(table.group.pending) == 10_000
    assert table.join("c-10005", old=False).joined.error is Error.NONE
    assert table.join("c-1", old=False).joined.error is Error.UNKNOWN_MEMBER_ID
    table.pass_time(45_000)
    assert not table.group.pending


def test_an_initial_delay_gathers_the_members_of_a_group_that_starts_up() -> None:
    table = Table(initial_delay_ms=3_000)
    tickets = [table.join(client="a")]
    table.pass_time(2_999)
    tickets.append(table.join(client="b"))
    table.pass_time(2_999)
    assert not tickets[0].is_answered
    table.pass_time(2)
    assert [ticket.joined.generation for ticket in tickets] == [1, 1]


def test_newcomers_put_the_first_rebalance_off_no_longer_than_the_rebalance_timeout() -> None:
    table = Table(initial_delay_ms=3_000)
    first = table.join(client="a", rebalance_ms=10_000)
    for _ in range(9):
        table.join(client="b", rebalance_ms=10_000)
        table.pass_time(1_000)
        assert not first.is_answered
    table.pass_time(1_000)
    assert len(first.joined.members) == 10


MEMBER = MemberMetadata("m", None, "client", "/host", 60_000, 10_000, b"sub", b"asg")


def test_a_group_that_was_read_back_goes_on_without_a_rebalance() -> None:
    table = Table()
    metadata = GroupMetadata("consumer", 7, "range", "m", 0, (MEMBER,))
    table.see_to(table.group.restore(metadata, table.now))
    assert table.state() is State.STABLE
    assert table.heartbeat("m", 7) is Error.NONE
    assert table.sync("m", 7).synced.assignment == b"asg"
    table.pass_time(10_000)
    assert table.state() is State.EMPTY


def test_a_group_that_was_read_back_larger_than_allowed_rebalances() -> None:
    table = Table(max_size=1)
    others = tuple(MEMBER._replace(member_id=name) for name in ("a", "b"))
    metadata = GroupMetadata("consumer", 7, "range", "a", 0, others)
    table.see_to(table.group.restore(metadata, table.now))
    assert table.join("a").answers == []
    assert table.join("b").joined.error is Error.GROUP_MAX_SIZE_REACHED
    assert list(table.group.members) == ["a"]


def test_a_group_that_dies_sends_everyone_away() -> None:
    table = Table()
    first, second = table.stable("a", "b")
    waiting = table.join(first, (("range", b"changed"),))
    table.see_to(table.group.die(Error.NOT_COORDINATOR))
    assert waiting.joined.error is Error.NOT_COORDINATOR
    assert table.join(client="c").joined.error is Error.COORDINATOR_NOT_AVAILABLE
    assert table.heartbeat(second, 2) is Error.COORDINATOR_NOT_AVAILABLE
    assert table.sync(second, 2).synced.error is Error.COORDINATOR_NOT_AVAILABLE
    assert table.group.check_commit(commit(second, 2), 0) is Error.COORDINATOR_NOT_AVAILABLE
    assert table.group.expire(NEVER) == []


@pytest.mark.parametrize("client", ["x" * 32767, "ü" * 16383])
def test_a_member_id_fits_the_protocol_whatever_the_client_is_called(client: str) -> None:
    member_id = Table().join(client=client).joined.member_id
    assert len(member_id.encode()) < 32767
