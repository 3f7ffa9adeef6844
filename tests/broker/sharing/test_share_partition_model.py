"""Share partitions by random histories: every record is worked off at least once, by one member
at a time."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moldau.broker.coordination.share.state import ShareState, Update
from moldau.broker.sharing.delivery import AcknowledgedRange as Said
from moldau.broker.sharing.delivery import Acknowledgement as Kind
from moldau.broker.sharing.delivery import Change, Limits, Verdict
from moldau.broker.sharing.share_partition import SharePartition

LIMITS = Limits(records=12, deliveries=3, lock_ms=100)
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
                partition.begin_write()
                partition.end_write(succeeded=True)
            if partition.start == 31:
                return
        raise AssertionError(f"stuck: {partition.batches()}")


Sharing.TestCase.settings = settings(stateful_step_count=40)
TestSharing = Sharing.TestCase
