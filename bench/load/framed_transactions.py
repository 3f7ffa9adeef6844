"""Transactions by hand: what they cost the broker, with a client that costs almost nothing."""

from __future__ import annotations

import time
from typing import Any

from bench.tasks import FramedTransactions
from moldau.bench.errors import BenchFailed
from moldau.bench.proc import cpu_seconds
from moldau.bench.tasks import RequestFlow
from moldau.peer.cluster import TRANSACTION
from moldau.peer.connection import Connection
from moldau.records.record import Record, build_batch
from moldau.wire.apis import Api
from moldau.wire.errors import Error

_WITHIN_S = 60.0
# Topics are named by ids from the next version on.
_PRODUCE = 12
_PASSING = (
    Error.CONCURRENT_TRANSACTIONS,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
)


class Transactor:
    """One producer on one connection."""

    def __init__(self, task: FramedTransactions) -> None:
        self._task = task
        self._connection = Connection(task.host, task.port, "bench")
        self._id = {"transactional_id": task.transactional_id}
        self._record = [Record(0, time.time_ns() // 1_000_000, None, b"m" * task.size)]
        self._find_coordinator()
        answer = self._insist(
            lambda: self._connection.ask(
                Api.INIT_PRODUCER_ID,
                {
                    **self._id,
                    "transaction_timeout": 60_000,
                    "producer_id": -1,
                    "producer_epoch": -1,
                },
                at_most=5,
            )
        )
        self._become(answer)

    def run(self, seconds: float) -> int:
        """Return how many transactions were committed in that time."""
        count, deadline = 0, time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._produce()
            ends = {**self._id, **self._who, "committed": True}
            self._become(self._insist(lambda ends=ends: self._connection.ask(Api.END_TXN, ends)))
            count += 1
        return count

    def _produce(self) -> None:
        batch = build_batch(
            self._record,
            producer_id=self._who["producer_id"],
            producer_epoch=self._who["producer_epoch"],
            base_sequence=self._sequence,
            is_transactional=True,
        )
        partition = {"index": 0, "records": bytes(batch)}
        values = {
            **self._id,
            "acks": -1,
            "timeout": 30_000,
            "topic_data": [{"name": self._task.topic, "partition_data": [partition]}],
        }

        def ask() -> Any:
            answer = self._connection.ask(Api.PRODUCE, values, at_most=_PRODUCE)
            return answer.responses[0].partition_responses[0]

        self._insist(ask)
        self._sequence += 1

    def _become(self, answer: Any) -> None:
        who = {"producer_id": int(answer.producer_id), "producer_epoch": int(answer.producer_epoch)}
        self._who = who
        # Every transaction of this dialect has an epoch of its own.
        self._sequence = 0

    def _find_coordinator(self) -> None:
        key = self._task.transactional_id
        values = {"key": key, "key_type": TRANSACTION, "coordinator_keys": [key]}
        self._insist(lambda: self._connection.ask(Api.FIND_COORDINATOR, values).coordinators[0])

    def _insist(self, ask: Any) -> Any:
        deadline = time.monotonic() + _WITHIN_S
        while True:
            answer = ask()
            code = int(answer.error_code)
            if not code:
                return answer
            if code not in _PASSING or time.monotonic() > deadline:
                raise BenchFailed(f"{self._task.transactional_id}: {answer}")


def framed_transactions(task: FramedTransactions) -> RequestFlow:
    transactor = Transactor(task)
    before = transactor.run(task.warm_up_s)
    broker_cpu, started = cpu_seconds(task.broker_pid), time.monotonic()
    count = transactor.run(task.seconds)
    return RequestFlow(
        requests=count,
        total_requests=before + count,
        seconds=time.monotonic() - started,
        broker_cpu_s=cpu_seconds(task.broker_pid) - broker_cpu,
    )
