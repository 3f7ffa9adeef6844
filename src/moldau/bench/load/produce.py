"""Produce with librdkafka at millions of messages a second."""

from __future__ import annotations

import ctypes
import queue
import threading
import time

from moldau.bench.errors import BenchFailed
from moldau.bench.proc import cpu_seconds
from moldau.bench.rdkafka import MSG_F_BLOCK, PRODUCER, Client, Message
from moldau.bench.tasks import Flow, Produce

QUEUE_MESSAGES = 500_000
# librdkafka allocates each message here and frees it in its own thread. With one allocating thread
# both fight for one malloc arena, which halves the rate; threads that take turns, each with an
# arena of its own, allocate in one while what an earlier turn allocated is being freed.
THREADS = 4
TURN_MESSAGES = 200_000
FLUSH_TIMEOUT_S = 120


class Feeder:
    """Hands messages to librdkafka; several threads behind it take turns, never two at once."""

    def __init__(self, task: Produce) -> None:
        self._client = Client(
            PRODUCER,
            {
                "bootstrap.servers": task.bootstrap,
                "acks": task.acks,
                "linger.ms": 5,
                "batch.size": 1_000_000,
                "batch.num.messages": task.batch_messages,
                "queue.buffering.max.messages": QUEUE_MESSAGES,
                "queue.buffering.max.kbytes": 2_000_000,
                "topic.metadata.refresh.interval.ms": -1,
                **task.client,
            },
        )
        self._topic = self._client.topic(task.topic)
        self._task = task
        self._payload = ctypes.create_string_buffer(b"m" * task.size, task.size)
        self._messages = (Message * task.per_turn)()
        for message in self._messages:
            message.payload, message.size = ctypes.addressof(self._payload), task.size
        self._next_partition = 0
        self._turns: list[queue.SimpleQueue[int]] = [queue.SimpleQueue() for _ in range(THREADS)]
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        for turns in self._turns:
            threading.Thread(target=self._serve, args=(turns,), daemon=True).start()

    def feed(self, count: int) -> None:
        """Enqueue `count` messages (blocking while the queue is full) and wait for delivery."""
        thread = 0
        while count > 0:
            self._turns[thread].put(min(count, TURN_MESSAGES))
            failure = self._done.get()
            if failure is not None:
                raise failure
            count -= TURN_MESSAGES
            thread = (thread + 1) % THREADS
        self._client.flush(FLUSH_TIMEOUT_S)

    def _serve(self, turns: queue.SimpleQueue[int]) -> None:
        while True:
            count = turns.get()
            try:
                self._enqueue(count)
                self._done.put(None)
            except BenchFailed as failure:
                self._done.put(failure)

    def _enqueue(self, count: int) -> None:
        produce_batch = self._client.lib.rd_kafka_produce_batch
        per_turn, partitions = self._task.per_turn, self._task.partitions
        while count > 0:
            wanted = min(count, per_turn)
            taken = produce_batch(
                self._topic, self._next_partition, MSG_F_BLOCK, self._messages, wanted
            )
            if taken != wanted:
                raise BenchFailed(f"librdkafka took {taken} of {wanted} messages")
            self._next_partition = (self._next_partition + 1) % partitions
            count -= wanted


def produce(task: Produce) -> Flow:
    feeder = Feeder(task)
    # Connects, learns the topic's leader, and touches the memory that the timed part reuses.
    feeder.feed(max(task.warm_up, 1))
    broker_cpu, client_cpu = cpu_seconds(task.broker_pid), time.process_time()
    started = time.monotonic()
    feeder.feed(task.count)
    ended = time.monotonic()
    return Flow(
        messages=task.count,
        seconds=ended - started,
        broker_cpu_s=cpu_seconds(task.broker_pid) - broker_cpu,
        client_cpu_s=time.process_time() - client_cpu,
        started=started,
        ended=ended,
    )
