"""Refused writes: the lowest sequence of each idempotent producer that was turned away.

A log takes any first sequence of a producer that it does not know: retention may have deleted what
came before, and Kafka does the same. So when a producer's first batch is refused and the disk, say,
recovers, the batch that was sent right behind it would be taken as the first. librdkafka concludes
that the one before it was written too, and reports a success that is none.

Therefore what was refused is remembered: the lowest and the highest sequence of it. Until that is
written, what would leave a gap is refused as well, and clients send again from the lowest one on,
which is always taken.

They are refused for the same reason, if that is one that passes. A log that knows the producer
would call them out of order, as Kafka does, and librdkafka then begins a new epoch. In that it
sends again all that was not acknowledged, in every partition. A batch that was written just before
its leader changed would be written twice, for nobody can tell by its new number. Behind a batch
that can never be written they are out of order: the client has to number them anew.

What is remembered must never hold up a producer that did all right, since to librdkafka a sequence
out of order is fatal on its oldest batch. It is over as soon as

- the refused batch is in the log, whoever led when it was written, or the producer begins a new
  epoch;
- the log was cut or begun anew, or an unclean election made this broker the leader: what was
  refused here may have been written elsewhere, and lost again;
- the topic is deleted;
- a fifth batch beyond the refused one comes. Idempotent clients have at most five under way, so
  this one was sent by a client that knows of the refusal and goes on regardless (aiokafka does);
- it is a few minutes old, or many others are younger.

The memory is this broker's. But the leader before may have refused a batch as well, and librdkafka
may send the one behind it here before it sends that one again. So a gap in the sequences is not
called out of order, but waited for, among the first few batches of a producer in a leader's term.
Only a log that knows the producer has gaps. One that never saw it takes the later batch as Kafka
takes it.
"""

from __future__ import annotations

from struct import Struct

from moldau.broker.partitions.partition import Partition
from moldau.cluster.state.topics import MAX_NAME_LENGTH
from moldau.log.errors import OutOfOrderSequence
from moldau.log.producers.states import KEPT_BATCHES, Producer
from moldau.records.batch import HEADER_SIZE, MAGIC
from moldau.wire.errors import Error
from moldau.wire.primitives import TopicKey

# A refusal outlives one round and ends with the second. Rounds are counted, not seconds: a broker
# that was frozen still has unread what was sent behind the refused batch.
ROUND_MS = 150_000
MOST_REFUSALS = 20_000
_MAGIC_POSITION = 16
_LAST_DELTA_POSITION = 23
_LAST_DELTA = Struct(">i")
_PRODUCER_POSITION = 43
# producer id, epoch, base sequence
_PRODUCER = Struct(">qhi")
_HALF = 1 << 30
_MASK = 0x7FFF_FFFF
# Reasons that pass: every client sends the same batch again.
_PASSING = frozenset(
    (
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNKNOWN_TOPIC_ID,
        Error.NOT_ENOUGH_REPLICAS,
        Error.KAFKA_STORAGE_ERROR,
    )
)


class _Refusal:
    """What was refused of a producer's epoch: the lowest and the highest sequence, and the reason.

    `losses` are the partition's at that time. `blocked` batches had to wait since the last one that
    was let through.
    """

    __slots__ = ("blocked", "epoch", "highest", "losses", "lowest", "reason", "round")

    def __init__(self, epoch: int, sequence: int, reason: Error, losses: int, round: int) -> None:
        self.epoch = epoch
        self.lowest = self.highest = sequence
        self.reason = reason if reason in _PASSING else Error.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.losses = losses
        self.round = round
        self.blocked = 0

    def include(self, sequence: int) -> bool:
        """Note that a sequence was refused; whether it is higher than all before."""
        is_new = _is_after(sequence, self.highest)
        if is_new:
            self.highest = sequence
        return is_new

    def blocks(self, sequence: int) -> bool:
        """Return whether a sequence behind a gap has to wait.

        A client that is told to try again, and does so before it tries what is missing, has given
        that up: each of its attempts counts.
        """
        self.blocked += self.include(sequence) or self.reason in _PASSING
        return self.blocked < KEPT_BATCHES

    def expected(self, producer: Producer | None) -> int:
        """Return the sequence that comes next, by what the log knows of the producer."""
        if producer is None:
            return self.lowest
        if producer.epoch < self.epoch or not producer.batches:
            return 0
        return (producer.batches[-1].last_sequence + 1) & _MASK


class RefusedWrites:
    """The batches that this broker refused, by topic (name or id, as far as known), partition and
    producer.

    Event loop only. `topics` is empty nearly always, which is all that a write has to look at.
    """

    __slots__ = ("_count", "_round", "topics")

    def __init__(self) -> None:
        self.topics: dict[TopicKey, dict[tuple[int, int], _Refusal]] = {}
        self._count = 0
        self._round = 0

    def __len__(self) -> int:
        return self._count

    def remember(
        self,
        topic: TopicKey,
        index: int,
        batch: memoryview | None,
        partition: Partition | None,
        reason: Error,
    ) -> None:
        """A batch for a partition, which this broker may not have, is not going to be written."""
        producer = _producer_of(batch)
        if producer is None or (isinstance(topic, str) and len(topic) > MAX_NAME_LENGTH):
            return
        if partition is not None and self._waits_on(topic, partition, *producer):
            return
        self._remember(topic, index, *producer, partition.losses if partition else 0, reason)

    def _waits_on(
        self, topic: TopicKey, partition: Partition, producer_id: int, epoch: int, sequence: int
    ) -> bool:
        """Return whether the lowest batch that was refused had to wait for one before it. To begin
        anew with it would keep a client waiting for good that has lost what is missing."""
        known = self.topics.get(topic, {}).get((partition.index, producer_id))
        return (
            known is not None
            and (known.epoch, known.lowest, known.losses) == (epoch, sequence, partition.losses)
            and _is_after(sequence, known.expected(partition.log.producers.get(producer_id)))
        )

    def _remember(
        self,
        topic: TopicKey,
        index: int,
        producer_id: int,
        epoch: int,
        sequence: int,
        losses: int,
        reason: Error,
    ) -> None:
        refusals = self.topics.setdefault(topic, {})
        known = refusals.get((index, producer_id))
        refusal = _Refusal(epoch, sequence, reason, losses, self._round)
        if known is None:
            self._count += 1
        elif known.losses == losses and epoch <= known.epoch:
            if epoch < known.epoch:
                return
            if _is_after(sequence, known.lowest):
                known.include(sequence)
                return
            refusal.include(known.highest)
        refusals[index, producer_id] = refusal
        if self._count > MOST_REFUSALS:
            oldest = next(iter(self.topics))
            self._drop(oldest, next(iter(self.topics[oldest])))

    def check(self, partition: Partition, batch: memoryview) -> tuple[Error, str] | None:
        """Return why a batch has to wait, if one before it was refused and is missing still.

        A batch that need not wait is about to be written, or will be refused and remembered in its
        turn.
        """
        producer = _producer_of(batch)
        if producer is None:
            return None
        producer_id, epoch, sequence = producer
        place = (partition.index, producer_id)
        for topic in (partition.topic, partition.topic_id):
            refusal = self.topics.get(topic, {}).get(place)
            if refusal is None or epoch < refusal.epoch:
                continue
            known = partition.log.producers.get(producer_id)
            expected = refusal.expected(known)
            if (
                epoch > refusal.epoch
                or partition.losses != refusal.losses
                or (known is not None and known.epoch > epoch)
                or _is_after(expected, refusal.highest)
            ):
                self._drop(topic, place)
            elif _is_after(sequence, expected):
                if refusal.blocks(sequence):
                    return refusal.reason, _waiting(producer_id, sequence, expected)
            elif sequence == refusal.highest:
                self._drop(topic, place)
            else:
                refusal.blocked = 0
                if sequence == refusal.lowest:
                    (delta,) = _LAST_DELTA.unpack_from(batch, _LAST_DELTA_POSITION)
                    refusal.lowest = (sequence + delta + 1) & _MASK
        return None

    def check_gap(self, partition: Partition, gap: OutOfOrderSequence) -> tuple[Error, str] | None:
        """Return why a batch has to wait that the log calls out of order, if it is to come again.

        That is so if the leader before may have refused what is missing.
        """
        producer_id, expected = gap.producer_id, gap.expected
        producer = partition.log.producers.get(producer_id)
        if (
            producer is None
            or not partition.leader_epoch
            or _has_written(producer, partition.epoch_start)
            or not _is_after(gap.sequence, expected)
            or (partition.index, producer_id) in self.topics.get(partition.topic, ())
        ):
            return None
        reason = Error.NOT_LEADER_OR_FOLLOWER
        place = (partition.index, producer_id)
        self._remember(partition.topic, *place, gap.epoch, expected, partition.losses, reason)
        self.topics[partition.topic][place].blocks(gap.sequence)
        return reason, _waiting(producer_id, gap.sequence, expected)

    def producers_forgotten(self, partition: Partition, producer_ids: list[int]) -> None:
        """The log has let go of producers that it knew: what was refused of them is written."""
        for topic in (partition.topic, partition.topic_id):
            for producer_id in producer_ids:
                place = (partition.index, producer_id)
                if place in self.topics.get(topic, ()):
                    self._drop(topic, place)

    def topic_deleted(self, *keys: TopicKey) -> None:
        """Forget what was refused of a topic that is gone: one of the same name is another."""
        for key in keys:
            self._count -= len(self.topics.pop(key, ()))

    def end_round(self) -> None:
        """Forget what was refused before the last round."""
        for topic, refusals in list(self.topics.items()):
            for place in [key for key, each in refusals.items() if each.round < self._round]:
                self._drop(topic, place)
        self._round += 1

    def _drop(self, topic: TopicKey, place: tuple[int, int]) -> None:
        refusals = self.topics[topic]
        del refusals[place]
        self._count -= 1
        if not refusals:
            del self.topics[topic]


def _producer_of(batch: memoryview | None) -> tuple[int, int, int] | None:
    """(producer id, epoch, base sequence) of an idempotent producer's batch."""
    if batch is None or len(batch) < HEADER_SIZE or batch[_MAGIC_POSITION] != MAGIC:
        return None
    producer: tuple[int, int, int] = _PRODUCER.unpack_from(batch, _PRODUCER_POSITION)
    return producer if producer[0] >= 0 and producer[2] >= 0 else None


def _has_written(producer: Producer, term_start: int) -> bool:
    """Return whether a producer has written as much in this term as it can have had under way."""
    batches = producer.batches
    return len(batches) == KEPT_BATCHES and batches[0].last_offset >= term_start


def _waiting(producer_id: int, sequence: int, missing: int) -> str:
    return f"sequence {sequence} of producer {producer_id} has to wait for sequence {missing}"


def _is_after(sequence: int, other: int) -> bool:
    """Return whether a sequence comes later; they begin at 0 again after the largest number."""
    return 0 < (sequence - other) & _MASK < _HALF
