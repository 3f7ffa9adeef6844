"""The controller: decides about topics and partitions, and commits its decisions."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Protocol, TypeVar
from uuid import UUID

import msgspec

from moldau.cluster.decisions.assignment import NewPartitions, NewTopic
from moldau.cluster.decisions.decision_log import tell
from moldau.cluster.decisions.elections import eligible, handed_over, knows_elr
from moldau.cluster.decisions.partitions import (
    ElectionType,
    LeaderElection,
    Move,
    Outcomes,
    Reassignment,
    moving_partitions,
)
from moldau.cluster.decisions.topics import (
    Creation,
    Deletion,
    Growth,
    Outcome,
    TopicDefaults,
    check_configs,
    check_name,
    find_topic,
    unknown_topic,
)
from moldau.cluster.errors import ClusterError
from moldau.cluster.name_locks import NameLocks
from moldau.cluster.producer_ids import ProducerIds
from moldau.cluster.reconciler import Reconciler, ReconcilerSettings
from moldau.cluster.state.access import Access, AccessChange
from moldau.cluster.state.changes import (
    AnyChange,
    BrokerConfigured,
    TopicConfigured,
)
from moldau.cluster.state.state import ClusterState
from moldau.cluster.state.topics import PartitionState, Topic, collision_key
from moldau.cluster.store import Conflict, MetadataStore, NotController, StoreError
from moldau.peer.peers import Peers
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error

# How often a decision is made again because others changed its basis.
ATTEMPTS = 20
HAND_OVER_PAUSE_S = 0.05

UNCLEAN_ELECTION = "unclean.leader.election.enable"
MINIMUM_ISR = "min.insync.replicas"

Configs = dict[str, str]
T = TypeVar("T")
# Has topics created where the controller is, on behalf of somebody or (None) of this broker, and
# answers with what this broker sees then; None if this broker has become the controller.
CreateAtController = Callable[[Sequence[NewTopic], object], Awaitable[list[Outcome] | None]]

logger = logging.getLogger(__name__)


class ControllerSettings(TopicDefaults, ReconcilerSettings, Protocol):
    """The settings of a broker that the controller reads."""


class Controller:
    """The one who decides on topics, partitions and configs. Event loop only.

    Every broker has one, but only that of the broker which was elected decides; elsewhere
    everything is refused with NOT_CONTROLLER. Between `start` and `stop` it also does by itself
    what a controller has to do (see `Reconciler`).

    Several things asked for at once get one answer each, in order: the outcome, or the
    ClusterError it was refused with. Nothing is answered that is not durable.

    A decision reads the state and then waits for its commit. Meanwhile no other may be made on the
    same names here, so each takes hold of its names first; those on other names go on and share
    the store's next write. Where another broker was faster the decision is made anew.
    """

    def __init__(
        self,
        store: MetadataStore,
        defaults: ControllerSettings,
        broker: int,
        peers: Peers,
        *,
        new_id: Callable[[], UUID] = uuid.uuid4,
    ) -> None:
        self._store = store
        self._state = store.state
        self._broker = broker
        self.defaults = defaults
        self._new_id = new_id
        self.producer_ids = ProducerIds(store)
        self._reconciler = Reconciler(
            store, broker, peers, lambda: self.defaults, self.is_unclean, self.minimum_isr
        )
        self._names_held = NameLocks()
        # Where leadership of the next topic begins: random, so that several controllers' topics
        # even out, and then onwards, so that this one's do exactly.
        self._start = random.randrange(1 << 16)
        # Set by whoever can reach other brokers.
        self.create_at_controller: CreateAtController | None = None

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._state.controller_id == self._broker

    def start(self) -> None:
        """Begin with the work of a controller, whenever this broker is the one."""
        self._reconciler.start()

    async def stop(self) -> None:
        await self._reconciler.stop()

    # -- topics

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[Outcome]:
        """Create each topic unless it exists, or only say what would come of it."""
        async with self._names_held.hold(collision_key(topic.name) for topic in topics):
            return await self._create(topics, validate_only)

    async def ensure_topics(
        self, topics: Sequence[NewTopic], asker: object = None
    ) -> list[Outcome]:
        """Return the topics of these names, and create those that do not exist. At any broker.

        The controller judges by the `asker`, if it is another broker; None is this broker itself.

        However many ask at the same time, each topic is created once and all get the same one.
        """
        missing = [topic for topic in topics if topic.name not in self._state.topics]
        errors: dict[str, ClusterError] = {}
        if missing:
            unique = list({topic.name: topic for topic in missing}.values())
            async with self._names_held.hold(collision_key(topic.name) for topic in unique):
                still = [topic for topic in unique if topic.name not in self._state.topics]
                results: list[Outcome] | None = None
                if self.create_at_controller is not None and not self.is_active:
                    results = await self.create_at_controller(still, asker)
                if results is None:
                    results = await self._create(still, False)
                for topic, result in zip(still, results, strict=True):
                    if isinstance(result, ClusterError):
                        errors[topic.name] = result
        return [self._state.topics.get(t.name) or errors.get(t.name, _gone()) for t in topics]

    async def add_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[Outcome]:
        """Give each topic more partitions; the outcome is the topic as it then is."""
        async with self._names_held.hold(collision_key(request.name) for request in requests):
            growth = Growth(requests, self.defaults)
            outcomes = await self._outcomes(growth.decide, len(requests), validate_only)
        if validate_only:
            return outcomes
        return [
            self._state.topics.get(outcome.name, outcome) if isinstance(outcome, Topic) else outcome
            for outcome in outcomes
        ]

    async def delete_topics(self, topics: Sequence[str | UUID]) -> list[Outcome]:
        """Delete topics by name or id; the outcome is the topic that was."""
        async with self._names_held.hold(self._names(topics)):
            return await self._outcomes(Deletion(topics).decide, len(topics))

    async def alter_topic_configs(
        self, name: str, edit: Callable[[Configs], Configs], *, validate_only: bool = False
    ) -> None:
        """Replace a topic's own settings by what `edit` makes of them; ClusterError if refused."""
        if not name:
            raise ClusterError(Error.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_name(name)

        def decide(state: ClusterState) -> tuple[list[AnyChange], None]:
            topic = state.topics.get(name)
            if topic is None:
                raise unknown_topic(name)
            configs = edit(dict(topic.configs))
            check_configs(configs, self.defaults)
            return [TopicConfigured(name, configs)] if configs != topic.configs else [], None

        async with self._names_held.hold([collision_key(name)]):
            await self._carry_out(decide, validate_only)

    async def alter_broker_configs(
        self,
        broker: int | None,
        edit: Callable[[Configs], Configs],
        *,
        validate_only: bool = False,
    ) -> None:
        """The same for the dynamic settings of one broker, or (None) of all; `edit` checks them."""

        def decide(state: ClusterState) -> tuple[list[AnyChange], None]:
            current = state.broker_configs.get(broker, {})
            configs = edit(dict(current))
            return [BrokerConfigured(broker, configs)] if configs != current else [], None

        async with self._names_held.hold([f"broker {broker}"]):
            await self._carry_out(decide, validate_only)

    async def alter_access(
        self,
        decide: Callable[[Access], tuple[list[AccessChange], T]],
        *,
        validate_only: bool = False,
    ) -> T:
        """Change who may do what, how much or by which password; one decision at a time."""

        def decide_on(state: ClusterState) -> tuple[list[AnyChange], T]:
            changes, outcome = decide(state.access)
            return [*changes], outcome

        async with self._names_held.hold(["access rules"]):
            return await self._carry_out(decide_on, validate_only)

    # -- partitions

    async def elect_leaders(
        self, kind: ElectionType, wanted: Sequence[TopicPartition] | None
    ) -> Outcomes:
        """Elect leaders by hand: of these partitions, or of all that need it."""
        names = self._state.topics if wanted is None else {topic for topic, _ in wanted}
        async with self._names_held.hold(collision_key(name) for name in names):
            return await self._carry_out(LeaderElection(kind, wanted, self.minimum_isr).decide)

    async def reassign(self, moves: Sequence[Move], *, may_resize: bool = True) -> Outcomes:
        """Begin to move partitions, or take that back; answered before anything has arrived."""
        async with self._names_held.hold(collision_key(move.topic) for move in moves):
            decision = Reassignment(moves, may_resize, self.is_unclean)
            return await self._carry_out(decision.decide)

    def reassignments(
        self, wanted: Mapping[str, Sequence[int]] | None
    ) -> dict[str, dict[int, PartitionState]]:
        """Return the partitions that are moving, all or those of the ones asked for."""
        return moving_partitions(self._state, wanted)

    def is_unclean(self, topic: Topic) -> bool:
        """Return whether a replica that is not in sync may lead, if no other can."""
        own = topic.configs.get(UNCLEAN_ELECTION)
        if own is not None:
            return own.strip().lower() == "true"
        return self.defaults.topic_defaults.unclean_leader_election_enable

    def minimum_isr(self, topic: Topic) -> int:
        """Return the topic's min.insync.replicas, for decisions on who may lead (see
        `elections`)."""
        if not knows_elr(self._state):
            return 0
        own = topic.configs.get(MINIMUM_ISR)
        if own is not None:
            return int(own)
        return self.defaults.topic_defaults.min_insync_replicas

    async def hand_over(self) -> None:
        """Give the leaderships of this broker to others, since it is about to stop. At any broker.

        Returns when it leads nothing that another replica could lead; that may never be, if a
        replica does not catch up.
        """
        state, broker = self._state, self._broker
        is_known = False
        while True:
            try:
                if not is_known and broker in state.brokers:
                    # Leaders no longer count it as in sync, and it is not elected.
                    stopping = msgspec.structs.replace(state.brokers[broker], stopping=True)
                    await self._store.register(stopping)
                    is_known = True
                changes = handed_over(state, broker, eligible(state), self.minimum_isr)
                if changes:
                    await self._store.commit(changes, as_controller=False)
            except Conflict:
                # The state has been read again.
                await asyncio.sleep(0)
                continue
            except StoreError as problem:
                logger.warning("could not hand over partitions: %s", problem)
            if not _has_heirs(state, broker):
                return
            await asyncio.sleep(HAND_OVER_PAUSE_S)

    # -- deciding

    async def _create(self, topics: Sequence[NewTopic], validate_only: bool) -> list[Outcome]:
        creation = Creation(topics, self.defaults, self._new_id, self._next_place)
        return await self._outcomes(creation.decide, len(topics), validate_only)

    def _next_place(self, partitions: int) -> int:
        place = self._start
        self._start += partitions
        return place

    async def _outcomes(
        self,
        decide: Callable[[ClusterState], tuple[list[AnyChange], list[Outcome]]],
        count: int,
        validate_only: bool = False,
    ) -> list[Outcome]:
        """Return one answer for each request; what could not be committed gets the reason."""
        latest: list[Outcome] = []

        def remember(state: ClusterState) -> tuple[list[AnyChange], list[Outcome]]:
            nonlocal latest
            changes, latest = decide(state)
            return changes, latest

        try:
            return await self._carry_out(remember, validate_only)
        except ClusterError as error:
            return [o if isinstance(o, ClusterError) else error for o in latest] or [error] * count

    async def _carry_out(
        self,
        decide: Callable[[ClusterState], tuple[list[AnyChange], T]],
        validate_only: bool = False,
    ) -> T:
        """Decide and commit, again if another was faster; ClusterError if that cannot be."""
        for _ in range(ATTEMPTS):
            if not self.is_active:
                raise _not_controller()
            changes, outcome = decide(self._state)
            if validate_only or not changes:
                return outcome
            try:
                await self._store.commit(changes)
            except Conflict:
                continue
            except NotController:
                raise _not_controller() from None
            except StoreError as error:
                raise ClusterError(Error.KAFKA_STORAGE_ERROR, str(error)) from error
            tell(changes)
            return outcome
        raise ClusterError(
            Error.REQUEST_TIMED_OUT,
            "Other requests kept changing the same partitions. Try again.",
        )

    def _names(self, topics: Iterable[str | UUID]) -> Iterator[str]:
        for wanted in topics:
            topic = find_topic(self._state, wanted)
            if topic is not None:
                yield collision_key(topic.name)
            elif isinstance(wanted, str):
                yield collision_key(wanted)


def _has_heirs(state: ClusterState, broker: int) -> bool:
    """Return whether the broker leads a partition of which another that stays has a replica."""
    others = eligible(state) - {broker}
    return any(
        partition.leader == broker and not others.isdisjoint(partition.replicas)
        for topic in state.topics.values()
        for partition in topic.partitions
    )


def _not_controller() -> ClusterError:
    return ClusterError(
        Error.NOT_CONTROLLER, "This is not the correct controller for this cluster."
    )


def _gone() -> ClusterError:
    return ClusterError(Error.UNKNOWN_TOPIC_OR_PARTITION, "The topic was deleted in the meantime.")
