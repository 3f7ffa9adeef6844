"""The queue: a share group's messages, one by one (KIP-932)."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import confluent_kafka
from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

from moldau.client.connection import librdkafka_settings
from moldau.client.consumer.decoding import DecodeErrorHandler, Decoder
from moldau.client.errors import ClientError, ConsumeFailed, DecodeError, words_of
from moldau.client.queue.beginning import begin_at
from moldau.client.queue.job import Job, Outcome

if TYPE_CHECKING:
    from moldau.client.queue.renewing_consumer import RenewingConsumer

logger = logging.getLogger("moldau.client")

# Messages that are taken at once. All of them are locked from then on, so slow work wants few.
AHEAD = 50
POLL_S = 0.2
_KINDS = {
    Outcome.DONE: AcknowledgeType.ACCEPT,
    Outcome.RETRY: AcknowledgeType.RELEASE,
    Outcome.REJECTED: AcknowledgeType.REJECT,
}


class Queue:
    """Takes messages from topics as a member of a share group.

        with Queue("jobs", group="workers") as queue:
            for message in queue:
                work(message.value)
                message.done()

    Members of the group share all messages, however many partitions there are. A message belongs to
    its member until it is settled (`done`, `retry`, `reject`) or its lock runs out: 30 seconds,
    unless the group's `share.record.lock.duration.ms` says otherwise. Then it goes to another.

    A message of which nothing was said is done when the next one is asked for, and is retried if
    the `with` block is left by an exception. The broker is told with the next messages that are
    taken, by `flush`, and on closing: what it was not told, it delivers again.

    With `renewable`, `message.renew()` begins its lock anew, for work that takes longer. Such a
    queue has a protocol of its own instead of librdkafka's, which cannot do that: slower, with no
    settings but `client.id` and those of security, and a thread that sends its heartbeats.

    `ahead` messages are taken at once. `start` says where a group begins that is new: "earliest" or
    "latest", which is Kafka's default. Address and settings are given as for a `Consumer`. One
    thread at a time; `stop` may be called from any.
    """

    def __init__(
        self,
        *topics: str,
        group: str,
        bootstrap: str | None = None,
        start: str | None = None,
        ahead: int = AHEAD,
        renewable: bool = False,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        on_undecodable: DecodeErrorHandler | None = None,
        **settings: Any,
    ) -> None:
        if not topics:
            raise ValueError("name a topic to take messages from")
        self.group = group
        self.topics = topics
        config = librdkafka_settings(
            bootstrap,
            settings,
            defaults={
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": ahead,
            },
        )
        address = str(config["bootstrap.servers"])
        if start is not None:
            begin_at(address, group, start, settings)
        self._decoder = Decoder(key_deserializer, value_deserializer)
        self._on_undecodable = on_undecodable
        self._left: deque[Job] = deque()
        self._given: list[Job] = []
        self._stopped = threading.Event()
        self._closed = False
        self._job_type = Job
        self._renewing: RenewingConsumer | None = None
        self._consumer: Any
        if renewable:
            from moldau.client.queue.renewing_consumer import RenewingConsumer

            self._renewing = RenewingConsumer(address, group, topics, ahead, settings, _told)
            self._consumer = self._renewing
        else:
            self._consumer = ShareConsumer(config)
            self._consumer.set_acknowledgement_commit_callback(_told)
            self._consumer.subscribe(list(topics))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *problem: object) -> None:
        self._close(Outcome.DONE if kind is None else Outcome.RETRY)

    def __iter__(self) -> Iterator[Job]:
        return self.messages()

    def messages(self, timeout: float | None = None) -> Iterator[Job]:
        """Messages as they come; with a timeout, until none has come for so many seconds."""
        self._stopped.clear()
        last = time.monotonic()
        while not self._stopped.is_set():
            job = self._take()
            if job is not None:
                yield job
                last = time.monotonic()
                continue
            wait_s = POLL_S
            if timeout is not None:
                wait_s = min(wait_s, last + timeout - time.monotonic())
                if wait_s <= 0:
                    return
            self.fetch(wait_s)

    def take(self, timeout: float = 0.0) -> Job | None:
        """Return the next message, or None when none comes within the timeout."""
        return next(self.messages(timeout), None)

    def stop(self) -> None:
        """End the iteration once the message in hand is done. From any thread."""
        self._stopped.set()

    def flush(self, timeout: float = 60.0) -> None:
        """Tell the broker what became of the messages so far; ClientError if it does not take it.

        What is in hand, of which nothing was said yet, stays in hand.
        """
        self._check_open()
        self._pass_on([job for job in self._given if job.outcome is not None], Outcome.DONE)
        try:
            outcomes = self._consumer.commit_sync(timeout)
        except KafkaException as problem:
            raise ClientError(words_of(problem.args[0]), problem.args[0]) from None
        for partition, refused in outcomes.items():
            if refused is not None:
                error = refused.args[0]
                text = f"{partition.topic} [{partition.partition}]: {words_of(error)}"
                raise ClientError(text, error)

    def close(self) -> None:
        """Settle what is in hand as done, give back what was not given out, and leave the group."""
        self._close(Outcome.DONE)

    # For asyncio, too

    def fetch(self, wait_s: float) -> None:
        """Pass on what became of earlier messages, and take more."""
        self._check_open()
        self._pass_on(self._given, Outcome.DONE)
        try:
            raws = self._consumer.poll(max(wait_s, 0))
        except KafkaException as problem:
            raise ClientError(words_of(problem.args[0]), problem.args[0]) from None
        failed: ConsumeFailed | None = None
        for raw in raws:
            error = raw.error()
            if error is not None:
                failed = ConsumeFailed(words_of(error), error, raw.topic(), raw.partition())
            else:
                self._left.append(self._job(raw))
        if failed is not None:
            raise failed

    def _job(self, raw: confluent_kafka.Message) -> Job:
        deliveries = raw.delivery_count() or 1
        try:
            return self._job_type(self._decoder.decode(raw), deliveries, self._renew)
        except DecodeError as problem:
            job = self._job_type(Decoder().decode(raw), deliveries, self._renew)
            job.problem = problem
            return job

    def _renew(self, job: Job) -> None:
        self._check_open()
        if self._renewing is None:
            raise ClientError("only a queue created with renewable=True can renew locks")
        self._renewing.renew(job.raw)

    def _take(self) -> Job | None:
        """Return the next message that lies ready; the one before is done with."""
        if self._given and self._given[-1].outcome is None:
            self._given[-1].done()
        while self._left:
            job = self._left.popleft()
            self._given.append(job)
            if job.problem is None:
                return job
            # Another try would end the same.
            job.reject()
            if self._on_undecodable is None:
                raise job.problem
            self._on_undecodable(job.problem)
        return None

    def _pass_on(self, jobs: list[Job], otherwise: Outcome) -> None:
        for job in list(jobs):
            self._consumer.acknowledge(job.raw, _KINDS[job.settle(otherwise)])
            self._given.remove(job)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientError("the queue is closed")

    def _close(self, otherwise: Outcome) -> None:
        if self._closed:
            return
        self._stopped.set()
        try:
            self._pass_on(self._given, otherwise)
            self._given.extend(self._left)
            self._left.clear()
            self._pass_on(self._given, Outcome.RETRY)
        finally:
            self._closed = True
            self._consumer.close()


def _told(outcomes: Any, problem: Any = None) -> None:
    """Note what the broker did not take: others will work on these messages again."""
    if problem is not None:
        logger.warning(
            "the broker refused the outcome of some messages, and will deliver them again: %s",
            problem,
        )
