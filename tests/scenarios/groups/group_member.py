"""A member of a consumer group (KIP-848), in a process of its own: BOOTSTRAP GROUP TOPIC.

Commits what it read, a little at a time, each commit waited for. Prints `try PARTITION FIRST LAST`
before a commit and `done PARTITION FIRST LAST` when the broker has confirmed it, so that what it
called done was committed whatever becomes of it. SIGTERM has it leave the group.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

AT_ONCE = 100
WITHIN_S = 30.0
# It does not own what it read any more: somebody else reads it again.
FENCED = (
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError._FENCED,
    KafkaError._FATAL,
)


class Read(NamedTuple):
    """What was read of a partition and is not committed yet; `untold` is where the next `try`
    begins."""

    first: int
    last: int
    untold: int


class GroupMember:
    """Reads until it is asked to leave."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._topic = topic
        self._read: dict[int, Read] = {}
        self._leaves = False
        signal.signal(signal.SIGTERM, self._leave)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic], on_revoke=self._revoked, on_lost=self._lost)

    def run(self) -> None:
        say("ready")
        while not self._leaves:
            message = self._consumer.poll(0.2)
            count = 0
            while message is not None:
                if message.error() is None:
                    self._take(int(message.partition() or 0), int(message.offset() or 0))
                count += 1
                message = self._consumer.poll(0) if count < AT_ONCE else None
            self._commit()
        self._commit_all()
        self._consumer.close()

    def _take(self, partition: int, offset: int) -> None:
        read = self._read.get(partition)
        if read is None or offset != read.last + 1:
            # At first, and where the partition was lost and came back in between.
            self._read[partition] = Read(offset, offset, offset)
        else:
            self._read[partition] = read._replace(last=offset)

    def _commit(self) -> None:
        """Commit what was read; what cannot be committed now is tried again next time."""
        read = self._read
        if not read:
            return
        for partition, each in read.items():
            if each.untold <= each.last:
                say(f"try {partition} {each.untold} {each.last}")
                read[partition] = each._replace(untold=each.last + 1)
        places = [TopicPartition(self._topic, index, each.last + 1) for index, each in read.items()]
        try:
            told = self._consumer.commit(offsets=places, asynchronous=False) or []
        except KafkaException as problem:
            if problem.args[0].code() in FENCED:
                read.clear()
            return
        for each_told in told:
            if each_told.error is None:
                done = read.pop(each_told.partition)
                say(f"done {each_told.partition} {done.first} {done.last}")

    def _commit_all(self) -> None:
        deadline = time.monotonic() + WITHIN_S
        while self._read and time.monotonic() < deadline:
            self._commit()

    def _revoked(self, consumer: Any, partitions: Any) -> None:
        # Clean hand-over: who comes next begins behind what was read here.
        self._commit_all()
        self._lost(consumer, partitions)

    def _lost(self, consumer: Any, partitions: Any) -> None:
        for each in partitions:
            self._read.pop(each.partition, None)

    def _leave(self, *_: object) -> None:
        self._leaves = True


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    GroupMember(*sys.argv[1:4]).run()
