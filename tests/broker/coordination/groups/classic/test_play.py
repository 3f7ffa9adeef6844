"""Clients do anything in any order, also wrong things: the group keeps its promises."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moldau.broker.coordination.deadlines import NEVER
from moldau.broker.coordination.groups.classic.generations import State
from moldau.broker.coordination.groups.classic.messages import Departure
from moldau.broker.coordination.groups.group import Commit
from moldau.wire.errors import Error
from tests.broker.coordination.groups.classic.playing import Table, Ticket

PROTOCOLS = (
    (("range", b"a"),),
    (("range", b"b"), ("sticky", b"b")),
    (("sticky", b"c"), ("range", b"c")),
)
PARTITIONS = range(5)
LONGEST_WAIT_MS = 700_000


@dataclass
class Client:
    """What a well-meaning client knows of itself."""

    instance: str | None = None
    member_id: str = ""
    generation: int = -1
    leads: list[str] = field(default_factory=list)
    join: Ticket | None = None
    sync: Ticket | None = None
    owned: frozenset[int] = frozenset()

    def forget(self) -> None:
        self.member_id, self.generation, self.owned = "", -1, frozenset()
        self.leads = []
        self.join = self.sync = None


class Play(RuleBasedStateMachine):
    """Four clients, one of them static, and somebody who makes requests up."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table(max_size=3)
        self.clients = [Client(), Client(), Client(), Client("static")]
        self.tickets: list[Ticket] = []
        self.generations = [0]

    def hear(self) -> None:
        """The clients take note of the answers that have come."""
        for client in self.clients:
            if client.join is not None and client.join.is_answered:
                answer, client.join = client.join.joined, None
                if answer.error in (Error.NONE, Error.MEMBER_ID_REQUIRED):
                    client.member_id = answer.member_id
                if answer.error is Error.NONE:
                    client.generation = answer.generation
                    is_leader = answer.leader == answer.member_id and not answer.skip_assignment
                    members = [member.member_id for member in answer.members]
                    client.leads = members if is_leader else []
                elif answer.error is not Error.MEMBER_ID_REQUIRED:
                    client.forget()
            if client.sync is not None and client.sync.is_answered:
                given, client.sync = client.sync.synced, None
                client.owned = frozenset(given.assignment) if not given.error else frozenset()

    @rule(who=st.integers(0, 3), protocols=st.sampled_from(PROTOCOLS), old=st.booleans())
    def join(self, who: int, protocols: tuple[tuple[str, bytes], ...], old: bool) -> None:
        client = self.clients[who]
        # An eager client gives everything up before it joins again.
        client.owned, client.sync = frozenset(), None
        client.join = self.table.join(
            client.member_id, protocols, client=f"c{who}", instance=client.instance, old=old
        )
        self.tickets.append(client.join)
        self.hear()

    @rule(who=st.integers(0, 3))
    def sync(self, who: int) -> None:
        client = self.clients[who]
        if client.generation < 0:
            return
        shares = {
            member: bytes(PARTITIONS[place :: len(client.leads)])
            for place, member in enumerate(client.leads)
        }
        client.sync = self.table.sync(
            client.member_id, client.generation, shares, instance_id=client.instance
        )
        self.tickets.append(client.sync)
        self.hear()

    @rule(who=st.integers(0, 3))
    def heartbeat(self, who: int) -> None:
        client = self.clients[who]
        error = self.table.heartbeat(client.member_id, client.generation, client.instance)
        if error and error is not Error.REBALANCE_IN_PROGRESS:
            client.forget()

    @rule(who=st.integers(0, 3))
    def leave(self, who: int) -> None:
        client = self.clients[who]
        if client.member_id:
            self.table.leave(Departure(client.member_id, client.instance))
        client.forget()
        self.hear()

    @rule(who=st.integers(0, 3))
    def crash(self, who: int) -> None:
        self.clients[who].forget()

    @rule(
        member=st.sampled_from(["", "c0-1", "c1-2", "nobody"]),
        generation=st.integers(-1, 4),
        instance=st.none() | st.just("static"),
    )
    def lie(self, member: str, generation: int, instance: str | None) -> None:
        self.table.heartbeat("nobody", generation, instance)
        self.table.group.check_commit(Commit("nobody", instance, generation, (), 9), self.table.now)
        errors = self.table.leave(Departure("nobody", instance))
        assert errors[0] in (Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID)
        # Only a stale generation, so that it cannot speak for somebody who is there.
        if generation != self.table.group.generation:
            self.tickets.append(self.table.sync(member, generation, {member: b"\x00"}))

    @rule(ms=st.sampled_from([1, 100, 5_000, 9_999, 30_000, 60_000]))
    def wait(self, ms: int) -> None:
        self.table.pass_time(ms)
        self.hear()
        # A client that was not heard of for so long has stopped reading, too.
        for client in self.clients:
            if client.member_id not in self.table.group.members:
                client.owned = frozenset()

    @rule()
    def begin_to_hold_writes(self) -> None:
        self.table.hold_writes = True

    @precondition(lambda self: self.table.hold_writes)
    @rule(error=st.sampled_from([Error.NONE, Error.NOT_COORDINATOR]))
    def finish_writes(self, error: Error) -> None:
        self.table.hold_writes = False
        self.table.finish_writes(error)
        self.hear()

    @invariant()
    def generations_only_rise(self) -> None:
        generation = self.table.group.generation
        assert generation >= self.generations[-1]
        if generation > self.generations[-1]:
            self.generations.append(generation)

    @invariant()
    def the_leader_and_the_protocol_belong_to_the_group(self) -> None:
        group = self.table.group
        assert (group.leader is None) == (not group.members)
        assert group.leader is None or group.leader in group.members
        if group.state in (State.COMPLETING_REBALANCE, State.STABLE):
            assert group.members
            for member in group.members.values():
                assert group.protocol in [name for name, _ in member.protocols]
        if group.state is State.EMPTY:
            assert not group.members
        assert set(group.roster.by_instance.values()) <= set(group.members)
        if group.state is not State.PREPARING_REBALANCE:
            assert len(group.members) <= group.max_size

    @invariant()
    def nobody_owns_what_another_one_does(self) -> None:
        """Within a generation, which is what the coordinator can promise."""
        generation = self.table.group.generation
        owned: list[int] = []
        for client in self.clients:
            current = client.member_id in self.table.group.members
            if current and client.generation == generation:
                owned += client.owned
        assert len(owned) == len(set(owned))

    @invariant()
    def something_is_due_while_anyone_is_there(self) -> None:
        group = self.table.group
        if group.members or group.pending:
            waits_for_a_write = group.state is State.COMPLETING_REBALANCE and self.table.held
            assert group.due_at < NEVER or waits_for_a_write

    def teardown(self) -> None:
        """Everyone falls silent: nobody is left waiting and the group empties itself."""
        self.table.hold_writes = False
        self.table.finish_writes()
        self.table.pass_time(LONGEST_WAIT_MS)
        assert all(ticket.is_answered for ticket in self.tickets)
        assert self.table.group.state is State.EMPTY
        assert not self.table.group.pending


TestPlay = Play.TestCase
TestPlay.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)
