"""Requests in every state of a transaction: by its producer, and by those who are not.

A question changes what it is asked about, so each of them gets a transaction of its own, of one
transactional id. What counts is the answer that is not to come again, and the state after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from conformance.cases.coordination.membership import ready
from conformance.cases.coordination.transactions import Transaction
from conformance.registry import case
from conformance.session import Session
from moldau.wire.apis import Api
from moldau.wire.errors import Error

_AGAIN = (Error.CONCURRENT_TRANSACTIONS, Error.NOT_ENOUGH_REPLICAS)
# Long enough to begin, and over with the coordinator's next look.
_SHORT_MS = 100
# By a name, what makes another producer of this one: its id and its epoch.
_WHO: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "itself": lambda id, epoch: (id, epoch),
    "an earlier epoch": lambda id, epoch: (id, epoch - 1),
    "a later epoch": lambda id, epoch: (id, epoch + 7),
    "another producer": lambda id, epoch: (4_000_000, epoch),
}

Asked = tuple[Api, int, dict[str, Any]]


class Producer:
    """One whose transaction is brought into a state, again and again."""

    def __init__(self, s: Session) -> None:
        self.s = s
        self.topic, self.group = s.topic(), s.name("g")
        ready(s, self.group)
        self.txn = Transaction(s).init()

    def be(self, state: str) -> None:
        """Bring about a state, which may be that of one who has lost his transactional id."""
        self.txn.init(_SHORT_MS if state == "timed out" else 60_000)
        if state in ("empty", "followed"):
            self._follow(state)
            return
        self.txn.open(self.topic)
        values = {**self.txn.who, "group_id": self.group}
        if state == "timed out":
            self.txn.until("CompleteAbort")
            return
        self._until_taken(Api.ADD_OFFSETS_TO_TXN, 3, values)
        self._follow(state)
        for dialect, version in (("older", 3), ("newer", 5)):
            for commits, end in ((True, "committed"), (False, "aborted")):
                if state == f"{end}, {dialect}":
                    self._until_taken(Api.END_TXN, version, self.txn.who | {"committed": commits})
                    self.txn.until("CompleteCommit" if commits else "CompleteAbort")

    def _follow(self, state: str) -> None:
        if state.startswith("followed"):
            values = {"transactional_id": self.txn.id, "transaction_timeout": 60_000}
            self._until_taken(Api.INIT_PRODUCER_ID, 1, values)

    def _until_taken(self, api: Api, version: int, values: dict[str, Any]) -> None:
        self.s.until(
            lambda: int(self.s.quietly(api, version, **values).error_code) == 0, f"{api.name}"
        )

    def asks(self, who: dict[str, Any]) -> Iterator[tuple[str, Asked]]:
        """All that a producer asks of a coordinator, and what others ask in its name."""
        named = [{"name": self.topic, "partitions": [0]}]
        yield (
            "begin anew",
            (Api.INIT_PRODUCER_ID, 5, who | {"transaction_timeout": 60_000}),
        )
        own = {f"v3_and_below_{key}": value for key, value in who.items()}
        yield (
            "a partition",
            (Api.ADD_PARTITIONS_TO_TXN, 3, own | {"v3_and_below_topics": named}),
        )
        for what, verify_only in (("a partition, by a broker", False), ("verify it", True)):
            wanted = who | {"verify_only": verify_only, "topics": named}
            yield what, (Api.ADD_PARTITIONS_TO_TXN, 5, {"transactions": [wanted]})
        yield "a group", (Api.ADD_OFFSETS_TO_TXN, 4, who | {"group_id": self.group})
        partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
        offsets = {"group_id": self.group, "generation_id": -1, "member_id": "", **who}
        offsets["topics"] = [{"name": self.topic, "partitions": [partition]}]
        for version in (4, 5):
            yield f"an offset, v{version}", (Api.TXN_OFFSET_COMMIT, version, offsets)
        for version in (11, 12):
            yield f"a write, v{version}", (Api.PRODUCE, version, self._written(who))
        for version in (3, 5):
            for commits in (True, False):
                what = f"{'commit' if commits else 'abort'}, v{version}"
                yield what, (Api.END_TXN, version, who | {"committed": commits})

    def _written(self, who: dict[str, Any]) -> dict[str, Any]:
        batch = self.s.batch(
            b"x", producer_id=who["producer_id"], producer_epoch=who["producer_epoch"],
            base_sequence=0, is_transactional=True,
        )  # fmt: skip
        data = [{"name": self.topic, "partition_data": [{"index": 0, "records": batch}]}]
        id = who["transactional_id"]
        return {"transactional_id": id, "acks": -1, "timeout": 10_000, "topic_data": data}

    def answer(self, asked: Asked) -> tuple[list[int], str]:
        """The errors, how far the epoch has gone, and the state after it."""
        api, version, values = asked
        found: list[Any] = []

        def is_final() -> bool:
            found.append(self.s.quietly(api, version, **values))
            return not set(_errors(api, version, found[-1])) & set(_AGAIN)

        self.s.until(is_final, f"final answer of {api.name}")
        errors = _errors(api, version, found[-1])
        raised = api is Api.INIT_PRODUCER_ID or (api is Api.END_TXN and version >= 5)
        if raised and not any(errors):
            is_same = found[-1].producer_id == self.txn.producer_id
            errors += [found[-1].producer_epoch - self.txn.epoch, int(is_same)]
        return errors, self.settled()

    def settled(self) -> str:
        """The state that it comes to by itself."""
        states: list[str] = []

        def is_settled() -> bool:
            states.append(self.txn.state() or "")
            return not states[-1].startswith("Prepare")

        self.s.until(is_settled, "end of the transaction")
        return states[-1]


def _errors(api: Api, version: int, answer: Any) -> list[int]:
    if api is Api.ADD_PARTITIONS_TO_TXN and version < 4:
        topics = answer.results_by_topic_v3_and_below
        return [
            int(each.partition_error_code)
            for topic in topics
            for each in topic.results_by_partition
        ]
    if api is Api.ADD_PARTITIONS_TO_TXN:
        return [int(answer.error_code)] + [
            int(each.partition_error_code)
            for transaction in answer.results_by_transaction
            for topic in transaction.topic_results
            for each in topic.results_by_partition
        ]
    if api is Api.TXN_OFFSET_COMMIT:
        return [int(each.error_code) for topic in answer.topics for each in topic.partitions]
    if api is Api.PRODUCE:
        results = [each for topic in answer.responses for each in topic.partition_responses]
        return [int(each.error_code) for each in results]
    return [int(answer.error_code)]


def _ask_all(s: Session, state: str) -> None:
    producer = Producer(s)
    names = [what for what, _ in producer.asks(producer.txn.who)]
    for who, become in _WHO.items():
        for number, what in enumerate(names):
            producer.be(state)
            txn = producer.txn
            id, epoch = become(txn.producer_id, txn.epoch)
            asker = txn.who | {"producer_id": id, "producer_epoch": epoch}
            _, asked = list(producer.asks(asker))[number]
            s.note(f"{what}, {who}", producer.answer(asked), asked[0])


@case(Api.END_TXN, newest=True)
def before_the_first_partition(s: Session, version: int) -> None:
    _ask_all(s, "empty")


@case(Api.END_TXN, newest=True)
def while_a_transaction_is_open(s: Session, version: int) -> None:
    _ask_all(s, "open")


@case(Api.END_TXN, newest=True)
def after_a_commit_of_the_older_dialect(s: Session, version: int) -> None:
    _ask_all(s, "committed, older")


@case(Api.END_TXN, newest=True)
def after_an_abort_of_the_older_dialect(s: Session, version: int) -> None:
    _ask_all(s, "aborted, older")


@case(Api.END_TXN, newest=True)
def after_a_commit_of_the_newer_dialect(s: Session, version: int) -> None:
    _ask_all(s, "committed, newer")


@case(Api.END_TXN, newest=True)
def after_an_abort_of_the_newer_dialect(s: Session, version: int) -> None:
    _ask_all(s, "aborted, newer")


@case(Api.END_TXN, newest=True)
def after_a_time_out(s: Session, version: int) -> None:
    _ask_all(s, "timed out")


@case(Api.END_TXN, newest=True)
def after_another_has_begun(s: Session, version: int) -> None:
    _ask_all(s, "followed")


@case(Api.END_TXN, newest=True)
def after_another_has_aborted_it(s: Session, version: int) -> None:
    _ask_all(s, "followed while open")


@case(Api.DESCRIBE_TRANSACTIONS, newest=True)
def how_each_state_is_described(s: Session, version: int) -> None:
    producer = Producer(s)
    txn = producer.txn
    for state in ("empty", "open", "committed, older", "aborted, newer", "timed out"):
        producer.be(state)
        answer = s.quietly(Api.DESCRIBE_TRANSACTIONS, version, transactional_ids=[txn.id])
        (found,) = answer.transaction_states
        s.note(state, [
            int(found.error_code), found.transaction_state, found.producer_epoch - txn.epoch,
            sorted((each.topic.startswith("__"), len(each.partitions)) for each in found.topics),
        ])  # fmt: skip


@case(Api.END_TXN, newest=True)
def two_requests_at_once(s: Session, version: int) -> None:
    """By two connections; one of them may be told to come again until the other is done."""
    producer = Producer(s)
    txn, connections = producer.txn, (s.connect(), s.connect())

    def ask(what: str, *pair: Asked) -> None:
        sent = [
            (via, *asked, via.send(*asked)) for via, asked in zip(connections, pair, strict=True)
        ]
        finals: list[list[int]] = []
        for via, api, version, values, id in sent:
            errors = _errors(api, version, via.answer(api, version, id))
            comes_again = bool(set(errors) & set(_AGAIN))
            finals.append(producer.answer((api, version, values))[0][:1] if comes_again else errors)
        s.note(what, sorted(finals))

    def end(which: int, *, commits: bool) -> Asked:
        return Api.END_TXN, which, txn.who | {"committed": commits}

    for which in (3, 5):
        for commits in (True, False):
            producer.be("open")
            same = end(which, commits=commits)
            ask(f"the same {'commit' if commits else 'abort'}, v{which}", same, same)
            s.note("its state", producer.settled())
    producer.be("open")
    ask("both ends, v3", end(3, commits=True), end(3, commits=False))
    for state in ("empty", "open"):
        producer.be(state)
        values = {"transactional_id": txn.id, "transaction_timeout": 9000}
        begin = (Api.INIT_PRODUCER_ID, 1, values)
        ask(f"two producers, {state}", begin, begin)
