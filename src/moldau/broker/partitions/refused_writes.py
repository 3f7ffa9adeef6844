"""Refused writes: the lowest sequence of each idempotent producer that was turned away.

A log takes any first sequence of a producer that it does not know: retention may have deleted what
came before, and Kafka does the same. So when a producer's first batch is refused and the disk, say,
recovers, the batch that was sent right behind it would be taken as the first. librdkafka concludes
that the one before it was written too, and reports a success that is none.

Therefore what was refused is remembered. Until it is written, higher sequences of that producer and
epoch are out of order, as they would be to a log that knows the producer. Clients then send again
from the lowest one on, which is always taken.

What is remembered must never hold up a producer that did all right, since to librdkafka this error
on its oldest batch is fatal. It is over as soon as

- the log knows the producer, whoever led when it wrote, or the producer begins a new epoch;
- the log was cut or begun anew, or an unclean election made this broker the leader: what was
  refused here may have been written elsewhere, and lost again;
- the topic is deleted;
- a fifth batch beyond the refused one comes. Idempotent clients have at most five under way, so
  this one was sent by a client that knows of the refusal and goes on regardless (aiokafka does);
- it is a few minutes old, or many others are younger.

The memory is this broker's. A producer that goes on with a later batch at another leader, which
never saw it before, is taken there as Kafka takes it.
"""

from __future__ import annotations

from struct import Struct

from moldau.broker.partitions.partition import Partition
from moldau.cluster.state.topics import MAX_NAME_LENGTH
from moldau.log.errors import OutOfOrderSequence
from moldau.log.producers.states import KEPT_BATCHES
from moldau.records.batch import HEADER_SIZE, MAGIC
from moldau.wire.primitives import TopicKey

# A refusal outlives one round and ends with the second. Rounds are counted, not seconds: a broker
# that was frozen still has unread what was sent behind the refused batch.
ROUND_MS = 150_000
MOST_REFUSALS = 20_000
_MAGIC_POSITION = 16
_PRODUCER_POSITION = 43
# producer id, epoch, base sequence
_PRODUCER = Struct(">qhi")
_HALF = 1 << 30
_MASK = 0x7FFF_FFFF


class _Refusal:
    """The lowest refused sequence of a producer's epoch.

    `losses` are the partition's at that time. `highest` is the last of the `blocked` batches that
    came beyond it since.
    """

    __slots__ = ("blocked", "epoch", "highest", "losses", "round", "sequence")

    def __init__(self, epoch: int, sequence: int, losses: int, round: int) -> None:
        self.epoch = epoch
        self.sequence = self.highest = sequence
        self.losses = losses
        self.round = round
        self.blocked = 0

    def blocks(self, sequence: int) -> bool:
        """Return whether a sequence has to wait for the refused one."""
        if not _is_after(sequence, self.sequence):
            return False
        if _is_after(sequence, self.highest):
            self.highest = sequence
            self.blocked += 1
        return self.blocked < KEPT_BATCHES


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
        self, topic: TopicKey, index: int, batch: memoryview | None, partition: Partition | None
    ) -> None:
        """A batch for a partition, which this broker may not have, is not going to be written."""
        producer = _producer_of(batch)
        if producer is None or (isinstance(topic, str) and len(topic) > MAX_NAME_LENGTH):
            return
        producer_id, epoch, sequence = producer
        losses = partition.losses if partition is not None else 0
        refusals = self.topics.setdefault(topic, {})
        known = refusals.get((index, producer_id))
        if known is None:
            self._count += 1
        elif known.losses == losses and (
            epoch < known.epoch or (epoch == known.epoch and _is_after(sequence, known.sequence))
        ):
            return
        refusals[index, producer_id] = _Refusal(epoch, sequence, losses, self._round)
        if self._count > MOST_REFUSALS:
            oldest = next(iter(self.topics))
            self._drop(oldest, next(iter(self.topics[oldest])))

    def check(self, partition: Partition, batch: memoryview) -> None:
        """OutOfOrderSequence if a lower sequence was refused and has not been written since.

        A batch that passes is about to be written, or will be refused and remembered in its turn.
        """
        producer = _producer_of(batch)
        if producer is None:
            return
        producer_id, epoch, sequence = producer
        place = (partition.index, producer_id)
        for topic in (partition.topic, partition.topic_id):
            refusal = self.topics.get(topic, {}).get(place)
            if refusal is None:
                continue
            if (
                partition.log.producers.get(producer_id) is None
                and partition.losses == refusal.losses
                and epoch <= refusal.epoch
            ):
                if epoch < refusal.epoch:
                    continue
                if refusal.blocks(sequence):
                    raise OutOfOrderSequence(producer_id, epoch, sequence, refusal.sequence)
            self._drop(topic, place)

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


def _is_after(sequence: int, other: int) -> bool:
    """Return whether a sequence comes later; they begin at 0 again after the largest number."""
    return 0 < (sequence - other) & _MASK < _HALF
