"""The state machine among clients, a network and coordinators that misbehave, against a model.

Requests are sent, and arrive later, twice, or after the transaction that they were meant for; their
answers may be lost. A write of the coordinator takes a while, and it may move meanwhile, with or
without it. Partitions take what belongs to an open transaction, and markers end it. What
must hold in TV2, whatever the order: a transaction is committed as a whole only if its client asked
for that, and the client is told the truth. In TV1 late requests can break that, as is known
(KAFKA-17754); what fences must hold there too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moldau.broker.coordination.transactions import machine
from moldau.broker.coordination.transactions.machine import (
    DECIDED,
    FOLLOWS,
    LAST_CLIENT_EPOCH,
    Decision,
    End,
    Init,
    NeedsProducerId,
    Refused,
    Unchanged,
    Write,
)
from moldau.broker.coordination.transactions.records import read_value, value_of
from moldau.broker.coordination.transactions.transaction import (
    NO_EPOCH,
    NOBODY,
    Identity,
    State,
    Transaction,
)
from moldau.wire.errors import Error

ID = "t"
PARTITION = ("orders", 0)


@dataclass(eq=False)
class Client:
    """One life of a process that has the transactional id."""

    number: int
    identity: Identity = NOBODY
    transaction: int = 0
    # Whether it has asked for a commit (True) or an abort of the current transaction.
    ends: bool | None = None
    is_dead: bool = False
    asked_to_commit: set[int] = field(default_factory=set)


class Request(NamedTuple):
    kind: str
    client: Client
    identity: Identity
    transaction: int
    commits: bool = False


@dataclass(eq=False)
class Row:
    """A record that a partition took, and what became of it."""

    identity: Identity
    client: Client
    transaction: int
    is_committed: bool | None = None


class World(RuleBasedStateMachine):
    version = machine.TV2

    def __init__(self) -> None:
        super().__init__()
        # Close to the last epoch, so that it runs out.
        self.value: Transaction | None = Transaction(
            ID, Identity(0, LAST_CLIENT_EPOCH - 4), State.EMPTY, 1_000, 0
        )
        self.pending: tuple[Write, Request | None] | None = None
        self.clients = [Client(0)]
        self.flight: list[Request] = []
        self.rows: list[Row] = []
        self.handed_out: dict[Identity, Client] = {}
        self.partition_epochs: dict[int, int] = {}
        self.next_id = 1
        self.now = 0

    # Clients

    @rule()
    def start_a_client(self) -> None:
        self.clients.append(Client(len(self.clients)))

    @rule(which=st.integers(0, 9), says_who_it_was=st.booleans())
    def ask_to_begin(self, which: int, says_who_it_was: bool) -> None:
        client = self.clients[which % len(self.clients)]
        if client.is_dead or (client.identity != NOBODY and not says_who_it_was):
            return
        if client.ends is None:
            self.flight.append(Request("init", client, client.identity, client.transaction))

    @rule(which=st.integers(0, 9))
    def ask_to_write(self, which: int) -> None:
        client = self.clients[which % len(self.clients)]
        if client.identity != NOBODY and not client.is_dead and client.ends is None:
            self.flight.append(Request("add", client, client.identity, client.transaction))

    @rule(which=st.integers(0, 9), commits=st.booleans())
    def ask_to_end(self, which: int, commits: bool) -> None:
        client = self.clients[which % len(self.clients)]
        if client.identity == NOBODY or client.is_dead:
            return
        if client.ends is None:
            client.ends = commits
        if client.ends:
            client.asked_to_commit.add(client.transaction)
        ask = Request("end", client, client.identity, client.transaction, client.ends)
        self.flight.append(ask)

    @rule(which=st.integers(0, 2), commits=st.booleans(), is_late=st.booleans())
    def run_a_transaction(self, which: int, commits: bool, is_late: bool) -> None:
        """As it should go, so that much happens in few steps; but a copy of the end comes late."""
        client = self.clients[which % len(self.clients)]
        steps = ["end"] if client.ends is not None else ["add", "end"]
        for kind in ["init", *steps] if client.identity == NOBODY else steps:
            self.finish()
            if client.is_dead:
                return
            if kind == "end":
                self.ask_to_end(which, commits)
            elif kind == "add":
                self.ask_to_write(which)
            else:
                self.ask_to_begin(which, False)
            self.arrive_last(stays=is_late and kind == "end")
            if self.pending is not None:
                self.write_settles(True)

    @rule(which=st.integers(0, 2))
    def begin(self, which: int) -> None:
        client = self.clients[which % len(self.clients)]
        if not client.is_dead and client.ends is None:
            self.finish()
            self.ask_to_begin(which, True)
            self.arrive_last()
            self.finish()

    def arrive_last(self, *, stays: bool = False) -> None:
        if self.flight:
            self.arrive(len(self.flight) - 1, stays)

    def finish(self) -> None:
        if self.pending is not None:
            self.write_settles(True)
        if self.value is not None and self.value.state in DECIDED:
            self.markers_are_written(True)
            self.write_settles(True)

    # The network and the coordinator

    @precondition(lambda self: self.flight)
    @rule(which=st.integers(0, 99), stays=st.booleans())
    def arrive(self, which: int, stays: bool) -> None:
        request = self.flight[which % len(self.flight)]
        if not stays:
            self.flight.remove(request)
        self.now += 1
        self.decided(self.decide(request), request)

    def decide(self, request: Request, new_id: int | None = None) -> Decision:
        value, is_pending = self.value, self.pending is not None
        if request.kind == "init":
            expected = None if request.identity == NOBODY else request.identity
            init = Init(1_000, expected)
            decision = machine.initialize(value, is_pending, init, ID, self.now, new_id)
        elif request.kind == "add":
            decision = machine.add(
                value, is_pending, request.identity, [PARTITION], self.version, self.now
            )
        else:
            end = End(request.identity, request.commits, self.version)
            decision = machine.end(value, is_pending, end, self.now, new_id)
        if isinstance(decision, NeedsProducerId):
            self.next_id += 1
            return self.decide(request, self.next_id)
        return decision

    def decided(self, decision: Decision, request: Request) -> None:
        if isinstance(decision, Write):
            assert self.pending is None, "two writes at a time"
            self.pending = decision, request
        elif isinstance(decision, Unchanged):
            self.answer(request, Error.NONE, decision.producer)
        elif isinstance(decision, Refused):
            self.answer(request, decision.error, NOBODY)

    @precondition(lambda self: self.pending)
    @rule(is_answered=st.booleans())
    def write_settles(self, is_answered: bool) -> None:
        assert self.pending is not None
        (decision, request), self.pending = self.pending, None
        before, self.value = self.value, decision.transaction
        assert before is None or before.state in FOLLOWS[self.value.state]
        if request is not None and is_answered:
            self.answer(request, decision.error, decision.producer)
        elif request is not None and request.kind == "add":
            self.take(request)

    @rule(is_written=st.booleans())
    def the_coordinator_moves(self, is_written: bool) -> None:
        if self.pending is not None and is_written:
            self.value = self.pending[0].transaction
        self.pending = None
        if self.value is not None:
            self.value = read_value(ID, value_of(self.value))
            assert self.value.last_epoch == NO_EPOCH

    @precondition(lambda self: self.pending is None and self.value and self.value.state in DECIDED)
    @rule(is_complete=st.booleans())
    def markers_are_written(self, is_complete: bool) -> None:
        """Or some of them are, and their answers are lost, and they are written again."""
        value = self.value
        assert value is not None
        producer_id, epoch = value.producer
        for row in self.rows:
            if row.identity.producer_id == producer_id and row.is_committed is None:
                assert row.identity.epoch < epoch or value.version < machine.TV2
                row.is_committed = value.commits
        self.partition_epochs[producer_id] = epoch
        if is_complete:
            done = machine.complete(value, self.now)
            self.pending = Write(done, done.producer), None

    @precondition(lambda self: self.pending is None and self.value is not None)
    @rule()
    def time_out(self) -> None:
        value = self.value
        assert value is not None
        if value.state is not State.ONGOING:
            return
        self.now += 2_000
        assert machine.has_timed_out(value, self.now)
        decision = machine.abort(value, self.now)
        if isinstance(decision, NeedsProducerId):
            self.next_id += 1
            decision = machine.abort(value, self.now, self.next_id)
        assert isinstance(decision, Write)
        self.pending = decision, None

    # Answers

    def answer(self, request: Request, error: Error, producer: Identity) -> None:
        client = request.client
        if request.kind == "add" and not error:
            self.take(request)
        is_awaited = (
            not client.is_dead
            and client.identity == request.identity
            and client.transaction == request.transaction
        )
        if not is_awaited:
            return
        if error in (Error.CONCURRENT_TRANSACTIONS, Error.INVALID_PRODUCER_ID_MAPPING):
            client.is_dead = error is Error.INVALID_PRODUCER_ID_MAPPING
        elif error:
            client.is_dead = True
        elif request.kind == "init":
            assert self.handed_out.setdefault(producer, client) is client, producer
            client.identity = producer
            client.transaction += 1
        elif request.kind == "end" and client.ends is not None:
            self.check_truth(client, request)
            client.identity, client.ends = producer, None
            client.transaction += 1
            if self.version >= machine.TV2:
                assert self.handed_out.setdefault(producer, client) is client, producer

    def take(self, request: Request) -> None:
        """A partition takes a record whose transaction the coordinator has just confirmed."""
        identity = request.identity
        value = self.value
        assert value is not None
        assert (value.state, value.owner) == (State.ONGOING, identity)
        if identity.epoch >= self.partition_epochs.get(identity.producer_id, 0):
            self.partition_epochs[identity.producer_id] = identity.epoch
            self.rows.append(Row(identity, request.client, request.transaction))

    def check_truth(self, client: Client, request: Request) -> None:
        for row in self.rows:
            if (row.client, row.transaction) == (client, request.transaction):
                assert row.is_committed in (None, request.commits)

    # What must hold

    @invariant()
    def nobody_commits_but_its_client(self) -> None:
        outcomes: dict[tuple[Client, int], set[bool]] = {}
        for row in self.rows:
            if row.is_committed is not None:
                key = row.client, row.transaction
                outcomes.setdefault(key, set()).add(row.is_committed)
                if row.is_committed:
                    assert row.transaction in row.client.asked_to_commit
        assert all(len(outcome) == 1 for outcome in outcomes.values()), "a torn transaction"

    @invariant()
    def the_identity_is_legal(self) -> None:
        if self.value is not None:
            assert 0 <= self.value.producer.epoch <= machine.HIGHEST_EPOCH
            if self.value.state is State.ONGOING:
                assert self.value.producer.epoch <= LAST_CLIENT_EPOCH


class OldWorld(World):
    """TV1: late requests of an epoch are taken for new ones, but nobody gets past a fence."""

    version = 0

    def check_truth(self, client: Client, request: Request) -> None:
        """Not always told, because of late requests."""

    @invariant()
    def nobody_commits_but_its_client(self) -> None:
        for row in self.rows:
            if row.is_committed:
                assert row.client.asked_to_commit


World.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
OldWorld.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTwo = World.TestCase
TestOne = OldWorld.TestCase


def test_the_model_notices_a_coordinator_that_does_not_raise_the_epoch() -> None:
    """The late commit of KAFKA-17754, step by step, in the dialect that allows it."""
    world = OldWorld()
    client = world.clients[0]
    world.ask_to_begin(0, False)
    world.arrive(0, False)
    world.write_settles(True)
    for commits in (True, False):
        world.ask_to_write(0)
        world.arrive(0, False)
        world.write_settles(True)
        if commits:
            world.ask_to_end(0, True)
            world.arrive(0, True)
            late = world.flight.pop()
            world.write_settles(True)
            world.markers_are_written(True)
            world.write_settles(True)
    assert client.transaction == 2
    world.flight.append(late)
    world.arrive(0, False)
    world.write_settles(True)
    world.markers_are_written(False)
    assert world.rows[1].is_committed, "the commit of the first transaction ended the second"
    assert replace(client) is not client
    assert 2 not in client.asked_to_commit
