"""A transactional producer that sends what it is told to, in either dialect."""

from __future__ import annotations

import itertools
from typing import Any

from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, make_batch, produce_values

_numbers = itertools.count()
TV1, TV2 = 1, 2


def fresh_id() -> str:
    """A transactional id that no other test has."""
    return f"txn-{next(_numbers)}"


class Producer:
    """A producer with its own connection; TV1 as librdkafka speaks it, TV2 as Java does."""

    def __init__(
        self, broker: Broker | tuple[str, int], dialect: int = TV2, id: str | None = None
    ) -> None:
        self.client = Client(broker)
        self.dialect = dialect
        self.id = id or fresh_id()
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}
        self.client.ask(Api.FIND_COORDINATOR, 1, key=self.id, key_type=1)

    @property
    def who(self) -> dict[str, Any]:
        return {
            "transactional_id": self.id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def ask_init(self, version: int = 5, timeout: int = 60_000, **more: Any) -> Any:
        values = {"transactional_id": self.id, "transaction_timeout": timeout}
        values |= {"producer_id": -1, "producer_epoch": -1} | more
        return self.client.ask(Api.INIT_PRODUCER_ID, version, **values)

    def init(self, **more: Any) -> Producer:
        """Begins, however often it has to ask while an earlier transaction is aborted."""

        def ask() -> Any:
            answer = self.ask_init(**more)
            return None if answer.error_code == Error.CONCURRENT_TRANSACTIONS else answer

        answer = until(ask, "an epoch")
        assert answer.error_code == 0, answer
        self.become(answer)
        return self

    def become(self, answer: Any) -> None:
        if (self.producer_id, self.epoch) != (answer.producer_id, answer.producer_epoch):
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()

    def ask_add(self, *partitions: tuple[str, int], version: int = 0, **more: Any) -> list[int]:
        """The error of each partition."""
        topics = [{"name": topic, "partitions": [index]} for topic, index in partitions]
        who = {f"v3_and_below_{key}": value for key, value in (self.who | more).items()}
        answer = self.client.ask(
            Api.ADD_PARTITIONS_TO_TXN, version, **who, v3_and_below_topics=topics
        )
        return [
            each.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        ]

    def ask_produce(
        self, topic: str, *values: bytes, partition: int = 0, version: int | None = None
    ) -> Any:
        key = (topic, partition)
        sequence = self.sequences.get(key, 0)
        batch = make_batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = produce_values({topic: {partition: batch}}) | {"transactional_id": self.id}
        version = (12 if self.dialect == TV2 else 10) if version is None else version
        answer = self.client.ask(Api.PRODUCE, version, **data)
        result = answer.responses[0].partition_responses[0]
        if not result.error_code:
            self.sequences[key] = sequence + len(values)
        return result

    def ask_unsequenced(self, topic: str, value: bytes, **more: Any) -> Any:
        """Send what another broker sends that has set a record aside."""
        batch = make_batch(
            value,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            is_transactional=True,
            **more,
        )
        data = produce_values({topic: {0: batch}}) | {"transactional_id": self.id}
        answer = self.client.ask(Api.PRODUCE, 11, **data)
        return answer.responses[0].partition_responses[0]

    def produce(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Writes in a transaction, which the first write begins."""
        if self.dialect == TV1:
            assert self.ask_add((topic, partition)) == [0]
        result = self.ask_produce(topic, *values, partition=partition)
        assert result.error_code == 0, result

    def ask_end(self, *, commits: bool, version: int | None = None, **more: Any) -> Any:
        version = (5 if self.dialect == TV2 else 1) if version is None else version
        return self.client.ask(Api.END_TXN, version, **(self.who | more), committed=commits)

    def end(self, *, commits: bool) -> None:
        answer = self.ask_end(commits=commits)
        assert answer.error_code == 0, answer
        if self.dialect == TV2:
            self.become(answer)

    def describe(self) -> Any:
        answer = self.client.ask(Api.DESCRIBE_TRANSACTIONS, transactional_ids=[self.id])
        return answer.transaction_states[0]

    def state(self) -> str:
        """The name of the state; empty if there is no such transactional id."""
        answer = self.client.ask(Api.LIST_TRANSACTIONS, 0)
        states = {
            each.transactional_id: each.transaction_state for each in answer.transaction_states
        }
        return str(states.get(self.id, ""))

    def until(self, state: str) -> None:
        until(lambda: self.state() == state, f"{self.id} in state {state}")

    def ask_commit_offset(
        self, group: str, topic: str, offset: int, version: int | None = None, **more: Any
    ) -> int:
        version = (5 if self.dialect == TV2 else 3) if version is None else version
        if self.dialect == TV1:
            added = self.client.ask(Api.ADD_OFFSETS_TO_TXN, 0, **self.who, group_id=group)
            assert added.error_code == 0, added
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        values = {"group_id": group, "generation_id": -1, "member_id": ""} | self.who | more
        topics = [{"name": topic, "partitions": [partition]}]
        answer = self.client.ask(Api.TXN_OFFSET_COMMIT, version, **values, topics=topics)
        return int(answer.topics[0].partitions[0].error_code)
