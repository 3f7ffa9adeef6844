"""The invariants of replication, looked at after every step of a broker.

From the published specifications of Kafka's replication (hachikuji/kafka-specification, Vanlightly/
kafka-tlaplus, KIP-966), as predicates on the real objects:

- a leader epoch has one leader
- the high watermark of a leader never goes back within its epoch
- below any replica's high watermark all logs are the same, batch by batch (no divergence)
- a leader has everything that was ever below a high watermark (leader completeness), and knows
  which epoch wrote it
- what a leader commits, every live in-sync replica has
- an idempotent producer's numbers are there once, in their order
- what is said of transactions in `decisions`
- log start <= last stable <= high watermark <= log end
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from uuid import UUID

from moldau.broker.partitions.partition import Partition
from moldau.cluster.state.internal_topics import TRANSACTION_STATE
from moldau.log.log import Log
from tests.simulation.checks.decisions import Decisions, Producers
from tests.simulation.checks.history import Violation
from tests.simulation.checks.logs import Batch, LogReader
from tests.simulation.checks.metadata import Metadata
from tests.simulation.core.process import Process
from tests.simulation.core.world import Node, World

Place = tuple[UUID, int]
# What is looked at after every step: only where it has changed, more is.
_LOOKS = attrgetter(
    "log.log_start", "log.last_stable", "log.high_watermark", "log.log_end", "leader_epoch",
    "is_leader",
)  # fmt: skip
# None of them changes, and no partition is opened or dropped, without one of these being set: a
# transaction begins and ends with a batch, and ends for readers with the high watermark.
_TELLING = frozenset(
    ("log_start", "producers", "high_watermark", "log_end", "leader_epoch", "is_leader", "log")
)


@dataclass
class Committed:
    """What has ever been below a high watermark of one partition."""

    name: str
    # By base offset.
    batches: dict[int, Batch] = field(default_factory=dict)
    end: int = 0
    # The last sequence number of each producer and epoch.
    sequences: dict[int, tuple[int, int]] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)
    producers: Producers = field(default_factory=Producers)
    # Parts of what was committed may be gone.
    is_compacted: bool = False


@dataclass
class Seen:
    """A replica as it was after the last step."""

    reader: LogReader
    place: Place
    log_start: int = -1
    last_stable: int = -1
    log_end: int = -1
    high_watermark: int = -1
    epoch: int = -1
    is_leader: bool = False
    # Up to where its log has been compared with what is committed; -1 for one that came back
    # without being in sync: it may hold anything until it has followed a leader.
    compared: int = -1
    truncations: int = 0


class Monitor:
    """Looks at the broker that has just done something."""

    def __init__(self, world: World, metadata: Metadata) -> None:
        self._world = world
        self._metadata = metadata
        self._nodes: dict[Process, Node] = {}
        self.committed: dict[Place, Committed] = {}
        self.decisions = Decisions()
        self._seen: dict[Partition, Seen] = {}
        # What all partitions of a process looked like after its last step.
        self._watched: dict[Process, list[tuple[int, int, int, int, int, bool]]] = {}
        # Processes that have been looked at since anything was set in any of them.
        self._looked_at: set[Process] = set()
        self._kept: list[Partition] = []
        # Where the log of each broker ended when it was last alive.
        self._ends: dict[tuple[int, Place], int] = {}
        self.checks = 0
        metadata.on_joined.append(self._joined)

    def discard(self) -> None:
        """Let go of all that belonged to the brokers."""
        self._seen.clear()
        self._watched.clear()
        self._kept.clear()
        self._nodes.clear()
        self._looked_at.clear()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Know meanwhile of all that is set in partitions and logs: most steps set nothing."""
        looked_at = self._looked_at

        def note(each: object, name: str, value: object) -> None:
            object.__setattr__(each, name, value)
            if name in _TELLING:
                looked_at.clear()

        for kind in (Partition, Log):
            kind.__setattr__ = note  # type: ignore[method-assign]
        try:
            yield
        finally:
            for kind in (Partition, Log):
                del kind.__setattr__

    def after_step(self, process: Process) -> None:
        if process in self._looked_at:
            return
        node = self._nodes.get(process)
        if node is None:
            nodes = self._world.nodes.values()
            node = next((each for each in nodes if each.process is process), None)
            if node is None:
                return
            self._nodes[process] = node
        broker = node.broker
        if broker is None or not process.is_alive:
            return
        partitions = broker.partitions.values()
        self._looked_at.add(process)
        looks = list(map(_LOOKS, partitions))
        if self._watched.get(process) == looks:
            return
        self._watched[process] = looks
        try:
            for partition in partitions:
                self._changed(node, partition, self._seen.get(partition))
        except Violation as violation:
            self._world.fail(violation)

    def _changed(self, node: Node, partition: Partition, seen: Seen | None) -> None:
        log = partition.log
        if (
            seen is None
            or seen.high_watermark != log.high_watermark
            or seen.epoch != partition.leader_epoch
            or seen.is_leader != partition.is_leader
            or seen.log_start != log.log_start
            or seen.last_stable != log.last_stable
            or log.log_end < seen.log_end
        ):
            self._look(node, partition, seen)
        elif seen.log_end != log.log_end:
            seen.log_end = log.log_end
            self._ends[node.id, seen.place] = log.log_end

    def _look(self, node: Node, partition: Partition, seen: Seen | None) -> None:
        self.checks += 1
        log = partition.log
        if seen is None:
            keeps_data = partition.topic == TRANSACTION_STATE.name
            reader = LogReader(node.disk, log.folder, keeps_data=keeps_data)
            seen = self._seen[partition] = Seen(reader, (partition.topic_id, partition.index))
            self._kept.append(partition)
        place = seen.place
        name = f"{partition.topic}-{partition.index}"
        committed = self.committed.get(place)
        if committed is None:
            committed = self.committed[place] = Committed(name)
        committed.is_compacted = committed.is_compacted or log.config.compacts
        self._ends[node.id, place] = log.log_end
        if log.log_end < seen.log_end or log.truncations != seen.truncations:
            seen.reader.forget()
            seen.compared = min(seen.compared, log.log_start)
            seen.truncations = log.truncations
        if log.offline is None:
            self._check_offsets(node, partition, seen, name)
            if partition.is_leader:
                self._check_leader(node, partition, seen, committed)
            self._compare(node, partition, seen, committed)
            if partition.is_leader:
                self._check_stable(node, partition, committed)
        seen.log_start = log.log_start
        seen.last_stable = log.last_stable
        seen.log_end = log.log_end
        seen.high_watermark = log.high_watermark
        seen.epoch = partition.leader_epoch
        seen.is_leader = partition.is_leader

    def _check_offsets(self, node: Node, partition: Partition, seen: Seen, name: str) -> None:
        log = partition.log
        if not log.log_start <= log.last_stable <= log.high_watermark <= log.log_end:
            raise Violation(
                f"{node.name} has {name} from {log.log_start}, stable to {log.last_stable}, "
                f"committed to {log.high_watermark}, and its end at {log.log_end}"
            )
        is_same_epoch = seen.is_leader and seen.epoch == partition.leader_epoch
        if partition.is_leader and is_same_epoch and log.high_watermark < seen.high_watermark:
            raise Violation(
                f"{node.name} leads {name} in epoch {seen.epoch}, and its high watermark went from "
                f"{seen.high_watermark} back to {log.high_watermark}"
            )

    def _check_stable(self, node: Node, partition: Partition, committed: Committed) -> None:
        """What a leader takes for decided is, and it knows of all that is."""
        log, end = partition.log, partition.log.high_watermark
        if end != committed.end or log.log_start >= end:
            return
        stable = max(committed.producers.stable(end), log.log_start)
        if log.last_stable != stable:
            raise Violation(
                f"{node.name} says of {committed.name} that {log.last_stable} is stable, but by "
                f"the log, which is committed up to {end}, it is {stable}"
            )

    def _check_leader(
        self, node: Node, partition: Partition, seen: Seen, committed: Committed
    ) -> None:
        epoch, name, log = partition.leader_epoch, committed.name, partition.log
        other = committed.leaders.setdefault(epoch, node.id)
        if other != node.id:
            raise Violation(f"{node.name} and broker {other} both lead {name} in epoch {epoch}")
        is_new = not seen.is_leader or seen.epoch != epoch
        if is_new and log.log_end < committed.end:
            raise Violation(
                f"{node.name} leads {name} in epoch {epoch} with a log that ends at {log.log_end}, "
                f"but everything before {committed.end} was committed"
            )
        if is_new:
            seen.reader.forget()
            self._compare_range(node, seen, committed, log.log_start, committed.end)
            self._check_epochs(node, log, seen, committed)
        if log.high_watermark > committed.end:
            self._check_in_sync(node, partition, name)

    def _check_epochs(self, node: Node, log: Log, seen: Seen, committed: Committed) -> None:
        """A leader knows which epoch wrote what: followers cut their logs by its word."""
        for batch in seen.reader.batches(log.log_start, committed.end):
            known = log.epochs.epoch_at(batch.base)
            if known != batch.epoch:
                raise Violation(
                    f"{node.name} leads {committed.name} and takes {batch} for one of epoch {known}"
                )

    def _check_in_sync(self, node: Node, partition: Partition, name: str) -> None:
        """What is committed now, everybody has who may be elected, dead or alive."""
        watermark = partition.log.high_watermark
        place = (partition.topic_id, partition.index)
        state = self._metadata.partition(partition.topic, place)
        if state is None:
            return
        for member in (*state.isr, *state.elr):
            end = self._ends.get((member, place), 0)
            if end < watermark and not self._is_offline(member, place):
                raise Violation(
                    f"{node.name} has committed {name} up to {watermark}, but broker {member}, "
                    f"which may be elected, has it only up to {end}: {state}"
                )

    def _joined(self, name: str, place: Place, broker: int) -> None:
        """Whoever comes into sync has everything that is committed."""
        committed = self.committed.get(place)
        node = self._world.nodes[broker]
        # The last words of one that is dead may arrive after it has lost its disk. It is in sync
        # like those that die there, until it is back and says what it has lost.
        is_lost = node.broker is None and f"{node.folder}/{name}" not in node.disk.names
        if committed is None or is_lost:
            return
        end = self._end_of(broker, place, name)
        if end < committed.end and not self._is_offline(broker, place):
            raise Violation(
                f"broker {broker} came into sync for {name} with a log that ends at {end}, but "
                f"everything before {committed.end} is committed"
            )

    def _end_of(self, member: int, place: Place, name: str) -> int:
        """Where a broker's log ends, also if it has not begun to serve yet."""
        node = self._world.nodes[member]
        broker = node.broker
        for log in broker.logs.logs.values() if broker is not None else ():
            if (log.topic_id, log.partition) == place:
                return log.log_end
        if f"{node.folder}/{name}" not in node.disk.names:
            # It was lost, or taken out of service.
            return 0
        return self._ends.get((member, place), 0)

    def _is_offline(self, member: int, place: Place) -> bool:
        """Whether it is about to find out that its log is of no use."""
        broker = self._world.nodes[member].broker
        logs = broker.logs.logs.values() if broker is not None else ()
        return any(
            log.offline is not None and (log.topic_id, log.partition) == place for log in logs
        )

    def _compare(self, node: Node, partition: Partition, seen: Seen, committed: Committed) -> None:
        """Compare what came below this replica's high watermark with what is committed."""
        log = partition.log
        state = self._metadata.partition(partition.topic, seen.place)
        if seen.compared < 0 and (state is None or node.id not in state.isr):
            return
        first = max(seen.compared, log.log_start)
        if log.high_watermark > first:
            self._compare_range(node, seen, committed, first, log.high_watermark)
        seen.compared = log.high_watermark

    def _compare_range(
        self, node: Node, seen: Seen, committed: Committed, first: int, end: int
    ) -> None:
        for batch in seen.reader.batches(first, end):
            known = committed.batches.get(batch.base)
            if known is not None:
                if known != batch and not (committed.is_compacted and _is_left_of(known, batch)):
                    raise Violation(
                        f"{node.name} has {committed.name} with {batch} below its high watermark, "
                        f"where {known} was committed"
                    )
            elif batch.base < committed.end:
                raise Violation(
                    f"{node.name} has {committed.name} with {batch} below its high watermark, "
                    f"where another batch was committed"
                )
            else:
                self._commit(node, committed, batch)

    def _commit(self, node: Node, committed: Committed, batch: Batch) -> None:
        if batch.base != committed.end and committed.end:
            raise Violation(
                f"{node.name} has committed {committed.name} from {batch.base} on after "
                f"{committed.end}"
            )
        committed.batches[batch.base] = batch
        committed.end = batch.last + 1
        self.decisions.committed(committed.name, committed.producers, batch)
        if batch.producer_id >= 0 and batch.sequence >= 0:
            epoch, last = committed.sequences.get(batch.producer_id, (-1, -1))
            if batch.producer_epoch == epoch and batch.sequence != last + 1:
                what = "again" if batch.sequence <= last else "after a gap"
                raise Violation(
                    f"{node.name} has committed {committed.name} with {batch}: number "
                    f"{batch.sequence} of producer {batch.producer_id} {what} (last: {last})"
                )
            committed.sequences[batch.producer_id] = (
                batch.producer_epoch,
                batch.sequence + batch.records - 1,
            )


def _is_left_of(known: Batch, batch: Batch) -> bool:
    """Whether this is what compaction may leave of a batch."""
    return batch.records <= known.records and batch == known._replace(
        crc=batch.crc, records=batch.records, attributes=batch.attributes, data=batch.data
    )
