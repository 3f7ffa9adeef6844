"""Share partitions: every record is worked off at least once, by one member at a time."""

from __future__ import annotations

import pytest

from moldau.broker.coordination.share.batches import ARCHIVED, AVAILABLE, StateBatch
from moldau.broker.sharing.delivery import AcknowledgedRange as Said
from moldau.broker.sharing.delivery import Acknowledgement as Kind
from moldau.broker.sharing.delivery import Acquired, Change, Limits, Verdict
from moldau.broker.sharing.share_partition import SharePartition
from moldau.wire.errors import Error

LIMITS = Limits(records=12, deliveries=3, lock_ms=100)


def write(partition: SharePartition, *, succeeded: bool = True) -> None:
    partition.begin_write()
    partition.end_write(succeeded=succeeded)


def refusal(outcome: Change | Verdict) -> Error:
    assert isinstance(outcome, Verdict)
    assert outcome.message
    return outcome.error


def say(partition: SharePartition, member: str, first: int, last: int, *kinds: int) -> None:
    change = partition.acknowledge(member, [Said(first, last, kinds)], 0)
    assert isinstance(change, Change)
    partition.queue(change)
    write(partition)


def test_records_go_to_one_member_at_a_time_in_whole_batches() -> None:
    partition = SharePartition(0, limits=LIMITS)
    assert partition.acquire("a", [(0, 3), (4, 7)], 2, 0) == [Acquired(0, 3, 1)]
    assert partition.acquire("b", [(4, 7)], 100, 0) == [Acquired(4, 7, 1)]
    assert partition.next_offset == 8
    assert (partition.holder(3), partition.holder(4)) == ("a", "b")


def test_not_one_record_more_is_given_to_who_asks_for_a_limit() -> None:
    partition = SharePartition(0, limits=LIMITS)
    assert partition.acquire("a", [(0, 9)], 3, 0, is_exact=True) == [Acquired(0, 2, 1)]
    assert partition.acquire("b", [(0, 9)], 100, 0, is_exact=True) == [Acquired(3, 9, 1)]
    assert partition.acquire("b", [(10, 19)], 100, 0, is_exact=True) == [Acquired(10, 11, 1)]
    assert not partition.may_acquire


def test_ranges_have_about_as_many_records_as_asked_for() -> None:
    partition = SharePartition(0)
    batches = [(0, 4), (5, 9), (10, 14), (15, 40)]
    ranges = partition.acquire("a", batches, 100, 0, batch_size=10)
    assert ranges == [Acquired(0, 9, 1), Acquired(10, 14, 1), Acquired(15, 40, 1)]


def test_what_is_said_counts_once_it_is_written() -> None:
    partition = SharePartition(0, limits=LIMITS)
    partition.acquire("a", [(0, 4)], 10, 0)
    change = partition.acknowledge("a", [Said(0, 4, [1, 1, 2, 3, 0])], 1, "ticket")
    assert isinstance(change, Change)
    assert partition.start == 0
    assert partition.acquire("b", [(0, 4)], 10, 2) == []
    partition.queue(change)
    written = partition.begin_write()
    assert written.start == 2
    assert written.batches == (StateBatch(2, 2, 0, 1), StateBatch(3, 4, 4, 1))
    assert [each.ticket for each in partition.end_write(succeeded=True)] == ["ticket"]
    assert partition.start == 2
    assert partition.acquire("b", [(0, 4)], 10, 2) == [Acquired(2, 2, 2)]


def test_what_could_not_be_written_was_never_said() -> None:
    partition = SharePartition(0, limits=LIMITS)
    partition.acquire("a", [(0, 4)], 10, 0)
    change = partition.acknowledge("a", [Said(0, 4, [1])], 1)
    assert isinstance(change, Change)
    partition.queue(change)
    write(partition, succeeded=False)
    assert partition.start == 0
    assert partition.holder(0) == "a"
    say(partition, "a", 0, 4, Kind.ACCEPT)
    assert partition.start == 5


def test_a_lock_that_runs_out_during_a_failed_write_is_released_after_it() -> None:
    partition = SharePartition(0, limits=LIMITS)
    partition.acquire("a", [(0, 4)], 10, 0)
    change = partition.acknowledge("a", [Said(0, 4, [1])], 1)
    assert isinstance(change, Change)
    partition.queue(change)
    partition.begin_write()
    assert partition.expire(200) is None
    assert partition.next_offset == 5
    partition.end_write(succeeded=False)
    assert partition.due_at <= 200
    partition.expire(200)
    assert partition.next_offset == 0


def test_nobody_may_speak_of_what_it_does_not_have() -> None:
    partition = SharePartition(0, limits=LIMITS)
    assert refusal(partition.acknowledge("a", [Said(0, 0, [1])], 0)) is Error.INVALID_RECORD_STATE
    partition.acquire("a", [(0, 4)], 10, 0)
    before = partition.batches()
    assert refusal(partition.acknowledge("b", [Said(0, 0, [1])], 0)) is Error.INVALID_RECORD_STATE
    assert refusal(partition.acknowledge("a", [Said(3, 5, [1])], 0)) is Error.INVALID_REQUEST
    twice = [Said(0, 2, [1]), Said(2, 3, [1])]
    assert refusal(partition.acknowledge("a", twice, 0)) is Error.INVALID_RECORD_STATE
    late = partition.acknowledge("a", [Said(0, 4, [1])], 100)
    assert refusal(late) is Error.INVALID_RECORD_STATE
    assert partition.batches() == before
    say(partition, "a", 0, 4, Kind.ACCEPT)
    again = partition.acknowledge("a", [Said(0, 2, [1])], 0)
    assert isinstance(again, Change)
    assert not again.ranges


def test_a_lock_can_be_renewed() -> None:
    partition = SharePartition(0, limits=LIMITS)
    partition.acquire("a", [(0, 0)], 10, 0)
    change = partition.acknowledge("a", [Said(0, 0, [Kind.RENEW])], 90)
    assert isinstance(change, Change)
    assert not change.ranges
    partition.expire(150)
    assert partition.holder(0) == "a"
    partition.expire(190)
    assert partition.holder(0) == ""


def test_a_record_that_is_out_of_tries_is_archived_when_that_is_written() -> None:
    partition = SharePartition(0, limits=LIMITS)
    for tries in (1, 2):
        assert partition.acquire("a", [(0, 0)], 10, 0) == [Acquired(0, 0, tries)]
        assert partition.leave("a") is None
    partition.acquire("a", [(0, 0)], 10, 0)
    change = partition.expire(100)
    assert change is not None
    assert [(dead.first, dead.is_rejected) for dead in change.dead] == [(0, False)]
    assert partition.acquire("b", [(0, 0)], 10, 100) == []
    partition.queue(change)
    assert partition.begin_write().start == 1
    partition.end_write(succeeded=True)
    assert partition.start == 1


def test_what_dies_can_be_divided_from_what_does_not() -> None:
    partition = SharePartition(0, limits=LIMITS)
    partition.acquire("a", [(0, 4)], 10, 0)
    dying = partition.acknowledge("a", [Said(0, 4, [1, 3, 0, 3, 1])], 1)
    assert isinstance(dying, Change)
    rest = partition.divide(dying)
    assert (dying.ranges, rest.ranges) == ([(1, 1), (3, 3)], [(0, 0), (2, 2), (4, 4)])
    assert not rest.dead
    partition.queue(rest)
    write(partition)
    assert partition.start == 1
    partition.take_back(dying)
    assert partition.leave("a") is None
    assert partition.acquire("b", [(0, 4)], 10, 2) == [Acquired(1, 1, 2), Acquired(3, 3, 2)]


@pytest.mark.parametrize("is_first_refused", [True, False])
def test_whoever_waits_for_a_divided_change_hears_of_both_parts(is_first_refused: bool) -> None:
    heard: list[Verdict] = []

    class Ticket:
        def done(self) -> bool:
            return bool(heard)

        def set_result(self, verdict: Verdict) -> None:
            heard.append(verdict)

    partition = SharePartition(0, limits=LIMITS)
    partition.acquire("a", [(0, 1)], 10, 0)
    dying = partition.acknowledge("a", [Said(0, 1, [1, 3])], 1, Ticket())
    assert isinstance(dying, Change)
    parts = [partition.divide(dying), dying]
    errors = [Error.NONE, Error.NOT_LEADER_OR_FOLLOWER]
    parts[is_first_refused].settle(errors[is_first_refused])
    assert not heard
    parts[not is_first_refused].settle(errors[not is_first_refused])
    assert [each.error for each in heard] == [Error.NOT_LEADER_OR_FOLLOWER]


def test_records_between_batches_are_given_out_so_that_they_do_not_stay() -> None:
    partition = SharePartition(0, limits=LIMITS)
    assert partition.acquire("a", [(2, 3), (6, 7)], 100, 0) == [Acquired(0, 7, 1)]
    partition.leave("a")
    assert partition.acquire("a", [(2, 3), (6, 7)], 100, 0) == [Acquired(0, 7, 2)]


def test_what_the_log_has_lost_is_forgotten() -> None:
    partition = SharePartition(0, limits=LIMITS)
    partition.acquire("a", [(0, 9)], 10, 0)
    change = partition.acknowledge("a", [Said(0, 6, [1])], 0)
    assert isinstance(change, Change)
    partition.move_start(5)
    partition.queue(change)
    assert partition.begin_write().start == 7
    partition.end_write(succeeded=True)
    assert partition.start == 7
    partition.move_start(20)
    assert (partition.start, partition.end) == (20, 20)
    late = partition.acknowledge("a", [Said(8, 9, [1])], 0)
    assert isinstance(late, Change)
    assert not late.ranges


def test_a_start_that_moves_during_a_write_is_written_with_the_next() -> None:
    partition = SharePartition(0, limits=LIMITS)
    partition.acquire("a", [(0, 9)], 10, 0)
    change = partition.acknowledge("a", [Said(0, 0, [1])], 0)
    assert isinstance(change, Change)
    partition.queue(change)
    assert partition.begin_write().start == 1
    partition.move_start(5)
    partition.end_write(succeeded=True)
    assert partition.needs_write
    assert partition.begin_write().start == 5
    partition.end_write(succeeded=False)
    assert partition.needs_write
    write(partition)
    assert not partition.needs_write


def test_a_lock_runs_out_once_however_often_its_record_cannot_be_buried() -> None:
    partition = SharePartition(0, limits=Limits(deliveries=1, lock_ms=100))
    partition.acquire("a", [(0, 4)], 10, 0)
    for now in (100, 600, 1_100):
        assert partition.due_at == now
        change = partition.expire(now)
        assert change is not None
        partition.take_back(change, now + 500)
        # Others that lock or say something do not have it tried any earlier.
        assert partition.expire(now + 1) is None
    late = partition.acknowledge("a", [Said(0, 4, [1])], 1_200)
    assert refusal(late) is Error.INVALID_RECORD_STATE
    assert (partition.expired, partition.dead) == (5, 0)


def test_what_was_written_is_read_back() -> None:
    batches = [StateBatch(3, 4, int(ARCHIVED), 1), StateBatch(7, 8, int(AVAILABLE), 2)]
    partition = SharePartition(2, batches, LIMITS)
    assert (partition.start, partition.end, partition.next_offset) == (2, 9, 2)
    given = partition.acquire("a", [(0, 9)], 100, 0)
    assert given == [Acquired(2, 2, 1), Acquired(5, 6, 1), Acquired(7, 8, 3), Acquired(9, 9, 1)]


def test_what_nobody_is_to_see_is_finished() -> None:
    partition = SharePartition(0, limits=LIMITS)
    partition.acquire("a", [(0, 4)], 10, 0)
    partition.withhold(0, 2)
    assert partition.start == 3
    assert partition.begin_write().start == 3
