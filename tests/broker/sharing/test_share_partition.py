"""Share partitions: every record is worked off at least once, by one member at a time."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moldau.broker.coordination.share.batches import ARCHIVED, AVAILABLE, StateBatch
from moldau.broker.coordination.share.state import ShareState, Update
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


MEMBERS = st.sampled_from(["a", "b", "c"])
BATCHES = ((0, 2), (3, 3), (4, 8), (9, 12), (15, 20), (21, 30))


class Sharing(RuleBasedStateMachine):
    """A share partition beside its coordinator's state, which outlives it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.durable = ShareState(0, 0, 0, 0)
        self.partition = SharePartition(0, limits=LIMITS)
        self.locks: dict[int, tuple[str, int]] = {}
        # Who has a record again because what was said of it, or that it went, was not written.
        self.given_back: dict[int, str] = {}
        self.finished: set[int] = set()
        self.said: dict[Change, set[int]] = {}
        self.pending: list[Change] = []
        self.writing: Update | None = None
        self.delivered: set[int] = set()

    @initialize(records=st.integers(1, 40), deliveries=st.integers(1, 4))
    def limit(self, records: int, deliveries: int) -> None:
        self.partition.limits = Limits(records, deliveries, 100)

    @rule(member=MEMBERS, most=st.integers(1, 12), size=st.integers(1, 6), exact=st.booleans())
    def acquire(self, member: str, most: int, size: int, exact: bool) -> None:
        partition = self.partition
        from_offset = partition.next_offset
        batches = [each for each in BATCHES if each[1] >= from_offset][:size]
        ranges = partition.acquire(member, batches, most, self.now, is_exact=exact)
        offsets = [each for first, last, _ in ranges for each in range(first, last + 1)]
        if exact:
            assert len(offsets) <= most
            assert partition.in_flight <= max(partition.limits.records, self.durable_reach())
        for offset in offsets:
            assert offset not in self.finished, "a finished record was given out again"
            holder, until = self.locks.get(offset, ("", -1))
            assert until <= self.now, f"{offset} was given to {member} while {holder} had its lock"
            self.locks[offset] = member, self.now + 100
            self.given_back.pop(offset, None)
        self.delivered.update(offsets)

    def durable_reach(self) -> int:
        return 31

    @rule(member=MEMBERS, kind=st.sampled_from(Kind), index=st.integers(0, 40), n=st.integers(1, 6))
    def acknowledge(self, member: str, kind: Kind, index: int, n: int) -> None:
        held = {o for o, (who, until) in self.locks.items() if who == member and until > self.now}
        change = self.partition.acknowledge(member, [Said(index, index + n - 1, [kind])], self.now)
        said = set(range(index, index + n))
        if isinstance(change, Verdict):
            taken = {offset for each in self.said.values() for offset in each}
            assert not said <= held or said & taken
            return
        live = {offset for offset in said if offset >= self.partition.start}
        held |= {offset for offset, who in self.given_back.items() if who == member}
        assert live <= held | self.finished
        if kind is Kind.RENEW:
            for offset in live & held:
                self.locks[offset] = member, self.now + 100
        else:
            self.said[change] = live & held if kind is not Kind.RELEASE else set()
            for offset in live & held:
                self.locks[offset] = member, 1 << 60
            self.pending.append(change)

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        self.let_go(self.partition.leave(member), member, 1 << 59)

    @rule(after=st.integers(1, 120))
    def wait(self, after: int) -> None:
        self.now += after
        self.let_go(self.partition.expire(self.now), None, self.now)

    def let_go(self, change: Change | None, member: str | None, until: int) -> None:
        for offset, (who, lock) in list(self.locks.items()):
            if lock <= until and member in (None, who):
                del self.locks[offset]
        if change is not None:
            self.said[change] = set()
            self.pending.append(change)

    @precondition(lambda self: self.pending)
    @rule(index=st.integers(0, 5), succeeds=st.booleans(), divides=st.booleans())
    def queue(self, index: int, succeeds: bool, divides: bool) -> None:
        change = self.pending.pop(index % len(self.pending))
        if divides and change.dead:
            rest = self.partition.divide(change)
            apart = {each for first, last in rest.ranges for each in range(first, last + 1)}
            self.said[rest] = self.said[change] & apart
            self.said[change] -= apart
            self.partition.queue(rest)
        if succeeds:
            self.partition.queue(change)
        else:
            self.partition.take_back(change)
            self.undo(change)

    @precondition(lambda self: self.writing is None and self.partition.needs_write)
    @rule()
    def begin_write(self) -> None:
        written = self.partition.begin_write()
        self.writing = Update(0, written.start, written.finished, written.batches)

    @precondition(lambda self: self.writing is not None)
    @rule(arrives=st.booleans(), is_known=st.booleans())
    def end_write(self, arrives: bool, is_known: bool) -> None:
        assert self.writing is not None
        if arrives:
            self.durable.apply(self.writing)
        self.writing = None
        for change in self.partition.end_write(succeeded=arrives and is_known):
            if arrives and is_known:
                self.finished |= self.said.pop(change)
                self.settle(change)
            else:
                self.undo(change)

    def settle(self, change: Change) -> None:
        for first, last in change.ranges:
            for offset in range(first, last + 1):
                if self.locks.get(offset, ("", 0))[1] >= 1 << 60:
                    del self.locks[offset]

    def undo(self, change: Change) -> None:
        self.said.pop(change, None)
        for first, last in change.ranges:
            for offset in range(first, last + 1):
                if self.locks.get(offset, ("", 0))[1] >= 1 << 60:
                    del self.locks[offset]
                if holder := self.partition.holder(offset):
                    # The lock is as it was, and may have run out.
                    self.given_back[offset] = holder
        self.let_go(self.partition.expire(self.now), None, self.now)

    @rule(arrives=st.booleans())
    def crash(self, arrives: bool) -> None:
        """Another leader begins with what was written, perhaps with what nobody was told of."""
        if self.writing is not None and arrives:
            self.durable.apply(self.writing)
        self.writing = None
        self.pending.clear()
        self.said.clear()
        self.locks.clear()
        self.given_back.clear()
        limits = self.partition.limits
        self.partition = SharePartition(self.durable.start, self.durable.batches, limits)

    @rule(offset=st.integers(0, 10))
    def lose(self, offset: int) -> None:
        self.partition.move_start(offset)

    @invariant()
    def covers_all_offsets_in_order(self) -> None:
        at = self.partition.start
        for batch in self.partition.batches():
            assert batch.first == at <= batch.last
            at = batch.last + 1
        assert at == self.partition.end

    def teardown(self) -> None:
        """Everything is worked off in the end, each record by somebody."""
        partition = self.partition
        for change in self.pending:
            partition.queue(change)
        if self.writing is not None:
            partition.end_write(succeeded=True)
        partition.limits = Limits(100, 100, 100)
        for _ in range(200):
            self.now += 100
            assert partition.expire(self.now) is None
            from_offset = partition.next_offset
            batches = [each for each in BATCHES if each[1] >= from_offset]
            for first, last, _ in partition.acquire("z", batches, 100, self.now):
                say_now = partition.acknowledge("z", [Said(first, last, [Kind.ACCEPT])], self.now)
                assert isinstance(say_now, Change)
                partition.queue(say_now)
            if partition.needs_write:
                write(partition)
            if partition.start == 31:
                return
        raise AssertionError(f"stuck: {partition.batches()}")


Sharing.TestCase.settings = settings(stateful_step_count=40)
TestSharing = Sharing.TestCase
