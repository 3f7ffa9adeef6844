"""Transactions: every API in and out of state, by the right producer and by others."""

from __future__ import annotations

import re
from typing import Any

from conformance.cases.coordination.membership import ready
from conformance.cases.tools import TOOLS, run
from conformance.registry import case, scenario
from conformance.session import Session
from moldau.wire.apis import Api


class Transaction:
    """A producer with a transactional id of its own."""

    def __init__(self, s: Session) -> None:
        self.s = s
        self.id = s.name("txn")
        self.producer_id, self.epoch = -1, -1
        self._sequences: dict[str, int] = {}

        def there() -> bool:
            answer = s.quietly(Api.FIND_COORDINATOR, 1, key=self.id, key_type=1)
            return int(answer.error_code) == 0 and self.state() is not None

        s.until(there, "transaction coordinator")

    @property
    def who(self) -> dict[str, Any]:
        return {
            "transactional_id": self.id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def init(self, timeout: int = 60_000) -> Transaction:
        """Begin, without comparing how often that had to be asked for."""

        def begun() -> bool:
            answer = self.s.quietly(
                Api.INIT_PRODUCER_ID, 1, transactional_id=self.id, transaction_timeout=timeout
            )
            if int(answer.error_code):
                return False
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
            return True

        self.s.until(begun, "producer id")
        return self

    def state(self) -> str | None:
        answer = self.s.quietly(Api.LIST_TRANSACTIONS, 0)
        if int(answer.error_code):
            return None
        states = {
            each.transactional_id: each.transaction_state for each in answer.transaction_states
        }
        return str(states.get(self.id, ""))

    def until(self, state: str) -> None:
        self.s.until(lambda: self.state() == state, f"{self.id} in {state}")

    def add(self, what: str, version: int, *topics: tuple[str, int], **more: Any) -> Any:
        named = [{"name": name, "partitions": [index]} for name, index in topics]
        who = {f"v3_and_below_{key}": value for key, value in (self.who | more).items()}
        return self.s.ask(
            what, Api.ADD_PARTITIONS_TO_TXN, version, **who, v3_and_below_topics=named
        )

    def open(self, topic: str) -> None:
        """Begin a transaction with a partition, in the older dialect."""

        def added() -> bool:
            who = {f"v3_and_below_{key}": value for key, value in self.who.items()}
            named = [{"name": topic, "partitions": [0]}]
            answer = self.s.quietly(Api.ADD_PARTITIONS_TO_TXN, 3, **who, v3_and_below_topics=named)
            (result,) = answer.results_by_topic_v3_and_below
            return int(result.results_by_partition[0].partition_error_code) == 0

        self.s.until(added, "transaction")

    def produce(self, what: str, topic: str, version: int) -> Any:
        sequence = self._sequences.get(topic, 0)
        batch = self.s.batch(
            b"x", producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=sequence,
            is_transactional=True,
        )  # fmt: skip
        data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
        answer = self.s.ask(
            what, Api.PRODUCE, version, transactional_id=self.id, acks=-1, timeout=10_000,
            topic_data=data,
        )  # fmt: skip
        if not int(answer.responses[0].partition_responses[0].error_code):
            self._sequences[topic] = sequence + 1
        return answer

    def end(self, what: str, version: int, *, commits: bool, **more: Any) -> Any:
        return self.s.ask(what, Api.END_TXN, version, **(self.who | more), committed=commits)

    def become(self, answer: Any) -> None:
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()


@case(Api.FIND_COORDINATOR, first=1)
def who_coordinates_a_transaction(s: Session, version: int) -> None:
    found = Transaction(s)
    for what, keys in (("one", [found.id]), ("two", [found.id, "other"]), ("none", [""])):
        values: dict[str, Any] = {"key": keys[0], "key_type": 1, "coordinator_keys": keys}
        s.ask(what, Api.FIND_COORDINATOR, version, **values)


@case(Api.INIT_PRODUCER_ID, last=5)
def transactional_producers(s: Session, version: int) -> None:
    topic, txn = s.topic(), Transaction(s)

    def init(what: str, **more: Any) -> Any:
        values: dict[str, Any] = {"transactional_id": txn.id, "transaction_timeout": 60_000}
        values |= {"producer_id": -1, "producer_epoch": -1}
        return s.ask(what, Api.INIT_PRODUCER_ID, version, **values | more)

    init("no timeout", transaction_timeout=0)
    init("a timeout that is too long", transaction_timeout=900_001)
    txn.init()
    init("again")
    init("and again")
    txn.init()
    if version >= 3:
        mine = {"producer_id": txn.producer_id, "producer_epoch": txn.epoch}
        init("another's epoch", **mine | {"producer_epoch": 30})
        init("another's id", **mine | {"producer_id": 4_000_000})
        init("who it was", **mine)
        init("the same, as if unanswered", **mine)
        txn.init()
        init("who it was before another came", **mine)
    txn.open(topic)
    init("while a transaction is open")
    txn.until("CompleteAbort")
    init("after its end")


@case(Api.ADD_PARTITIONS_TO_TXN, last=3)
def partitions_by_clients(s: Session, version: int) -> None:
    topic, other, txn = s.topic(), s.topic(2), Transaction(s)
    txn.add("an id that nobody has", version, (topic, 0), producer_id=7, producer_epoch=0)
    txn.init()
    txn.add("no id", version, (topic, 0), transactional_id="")
    txn.add("the wrong epoch", version, (topic, 0), producer_epoch=txn.epoch + 1)
    txn.add("the wrong producer", version, (topic, 0), producer_id=4_000_000)
    txn.add("no such topic", version, (topic, 0), (s.name("none"), 0))
    txn.add("no such partition", version, (topic, 0), (other, 5))
    txn.add("an internal topic", version, ("__transaction_state", 0))
    txn.add("no topics", version)
    s.note("nothing has begun", txn.state())
    txn.init()
    txn.add("the first", version, (topic, 0))
    txn.add("the same", version, (topic, 0))
    txn.add("more", version, (topic, 0), (other, 1))
    s.note("it has begun", txn.state())
    txn.end("the end", 3, commits=True)
    txn.until("CompleteCommit")
    txn.add("the next one", version, (topic, 0))


@case(Api.ADD_PARTITIONS_TO_TXN, first=4)
def partitions_by_brokers(s: Session, version: int) -> None:
    topic, other, txn = s.topic(), s.topic(), Transaction(s)

    def ask(what: str, *names: str, verify_only: bool = True, **more: Any) -> None:
        topics = [{"name": name, "partitions": [0]} for name in names]
        transaction = {**txn.who, "verify_only": verify_only, "topics": topics} | more
        s.ask(what, Api.ADD_PARTITIONS_TO_TXN, version, transactions=[transaction])

    ask("an id that nobody has", topic, producer_id=7, producer_epoch=0)
    txn.init()
    ask("nothing is open", topic)
    ask("the wrong epoch", topic, producer_epoch=txn.epoch + 1)
    ask("the wrong producer", topic, producer_id=4_000_000)
    ask("no id", topic, transactional_id="")
    ask("no such topic", s.name("none"))
    ask("add it", topic, verify_only=False)
    ask("it is there", topic)
    ask("one is not", topic, other)
    ask("add with the wrong epoch", other, verify_only=False, producer_epoch=txn.epoch + 1)
    ask("add with the wrong producer", other, verify_only=False, producer_id=4_000_000)
    ask("add no such topic", s.name("none"), verify_only=False)
    s.ask("none at all", Api.ADD_PARTITIONS_TO_TXN, version, transactions=[])
    txn.end("the end", 3, commits=True)
    txn.until("CompleteCommit")
    ask("after the end", topic)


@case(Api.ADD_OFFSETS_TO_TXN)
def groups_in_transactions(s: Session, version: int) -> None:
    txn, group = Transaction(s).init(), s.name("g")
    s.until(
        lambda: int(s.quietly(Api.FIND_COORDINATOR, 0, key=group).error_code) == 0, "coordinator"
    )

    def add(what: str, **more: Any) -> None:
        s.ask(what, Api.ADD_OFFSETS_TO_TXN, version, **{**txn.who, "group_id": group} | more)

    add("no id", transactional_id="")
    add("an id that nobody has", transactional_id=s.name("nobody"))
    add("the wrong epoch", producer_epoch=txn.epoch + 1)
    add("the wrong producer", producer_id=4_000_000)
    add("a group")
    add("the same group")
    s.note("it has begun", txn.state())


@case(Api.TXN_OFFSET_COMMIT)
def offsets_in_transactions(s: Session, version: int) -> None:
    topic, txn, group = s.topic(), Transaction(s).init(), s.name("g")
    ready(s, group)

    def commit(what: str, name: str = topic, index: int = 0, **more: Any) -> None:
        partition = {"partition_index": index, "committed_offset": 5, "committed_metadata": "m"}
        values = {"group_id": group, "generation_id": -1, "member_id": "", **txn.who}
        topics = [{"name": name, "partitions": [partition]}]
        s.ask(what, Api.TXN_OFFSET_COMMIT, version, **values | more, topics=topics)

    def fetch(what: str, *, stable: bool) -> None:
        asked = [{"name": topic, "partition_indexes": [0]}]
        s.ask(what, Api.OFFSET_FETCH, 7, group_id=group, topics=asked, require_stable=stable)

    if version < 5:
        commit("nobody has told the coordinator")
        added = s.quietly(Api.ADD_OFFSETS_TO_TXN, 3, **txn.who, group_id=group)
        s.note("added", int(added.error_code))
    commit("the wrong epoch", producer_epoch=txn.epoch + 1)
    commit("the wrong producer", producer_id=4_000_000)
    commit("an id that nobody has", transactional_id=s.name("nobody"))
    commit("no such topic", s.name("none"))
    commit("no such partition", index=9)
    commit("a group without members")
    fetch("while it is open", stable=False)
    fetch("while it is open, only if stable", stable=True)
    if version >= 3:
        commit("a member that nobody knows", member_id="m", generation_id=1)
        commit("a generation without a member", generation_id=1)
    txn.end("the end", 3, commits=True)
    txn.until("CompleteCommit")
    fetch("after its commit", stable=True)
    commit("after the end")


@case(Api.END_TXN)
def ends_of_transactions(s: Session, version: int) -> None:
    topic, txn = s.topic(), Transaction(s)
    txn.end("an id that nobody has", version, commits=True, producer_id=7, producer_epoch=0)
    txn.init()
    txn.end("no id", version, commits=True, transactional_id="")
    txn.end("a commit of nothing", version, commits=True)
    for commits in (True, False):
        txn.init()
        txn.open(topic)
        txn.end("the wrong epoch", version, commits=commits, producer_epoch=txn.epoch + 1)
        txn.end("an earlier epoch", version, commits=commits, producer_epoch=txn.epoch - 1)
        txn.end("the wrong producer", version, commits=commits, producer_id=4_000_000)
        answer = txn.end("the end", version, commits=commits)
        txn.until("CompleteCommit" if commits else "CompleteAbort")
        txn.end("the same end", version, commits=commits)
        if commits:
            txn.end("the other end", version, commits=False)
        if version >= 5 and answer is not None:
            txn.become(answer)
            txn.end("a commit of nothing more", version, commits=True)
            answer = txn.end("an abort of nothing more", version, commits=False)
            txn.until("CompleteAbort")
            txn.end("the same abort", version, commits=False)


@case(Api.END_TXN, newest=True)
def an_abort_of_nothing(s: Session, version: int) -> None:
    for which in (3, 5):
        txn = Transaction(s).init()
        txn.end(f"an abort of nothing, v{which}", which, commits=False)


@case(Api.END_TXN, newest=True)
def both_dialects_write(s: Session, version: int) -> None:
    topic, other = s.topic(), s.topic()
    txn = Transaction(s).init()
    for which in (3, 10, 11):
        txn.produce(f"not added, v{which}", topic, which)
    txn.open(topic)
    txn.produce("added, v10", topic, 10)
    txn.produce("another that was not, v11", other, 11)
    txn.end("the older end", 3, commits=True)
    txn.until("CompleteCommit")
    txn.produce("after the end, v10", topic, 10)
    txn.init()
    txn.produce("which adds it, v12", topic, 12)
    txn.produce("another, v12", other, 12)
    before = txn.epoch
    answer = txn.end("the newer end", 5, commits=True)
    txn.until("CompleteCommit")
    txn.produce("of the last transaction, v12", topic, 12)
    txn.become(answer)
    s.note("raised by", txn.epoch - before)
    txn.produce("of the next, v12", topic, 12)
    txn.end("which is aborted", 5, commits=False)
    txn.until("CompleteAbort")


@case(Api.DESCRIBE_TRANSACTIONS)
def what_is_known_of_transactions(s: Session, version: int) -> None:
    topic, txn = s.topic(2), Transaction(s).init(timeout=50_000)
    txn.open(topic)
    answer = s.quietly(Api.DESCRIBE_TRANSACTIONS, version, transactional_ids=[txn.id])
    (found,) = answer.transaction_states
    s.note("an open one", [
        int(found.error_code), found.transaction_state, str(found.transaction_timeout),
        found.producer_epoch, [each.partitions for each in found.topics],
    ])  # fmt: skip
    for what, ids in (("nobody's", [s.name("nobody")]), ("an empty id", [""]), ("none", [])):
        s.ask(what, Api.DESCRIBE_TRANSACTIONS, version, transactional_ids=ids)


@case(Api.LIST_TRANSACTIONS)
def lists_of_transactions(s: Session, version: int) -> None:
    topic, idle, busy = s.topic(), Transaction(s).init(), Transaction(s).init()
    busy.open(topic)

    def ask(what: str, **filters: Any) -> None:
        answer = s.quietly(Api.LIST_TRANSACTIONS, version, **filters)
        found = {
            each.transactional_id.replace(s.scope, ""): each.transaction_state
            for each in answer.transaction_states
            if each.transactional_id in (idle.id, busy.id)
        }
        s.note(what, [int(answer.error_code), answer.unknown_state_filters, sorted(found.items())])

    ask("all")
    ask("open ones", state_filters=["Ongoing"])
    ask("two states", state_filters=["Ongoing", "Empty"])
    ask("no such state", state_filters=["Nonsense"])
    ask("a state and none such", state_filters=["Empty", "Nonsense"])
    ask("by producer", producer_id_filters=[idle.producer_id])
    ask("by both", producer_id_filters=[idle.producer_id], state_filters=["Ongoing"])
    if version >= 1:
        ask("long ones", duration_filter=3_600_000)
        ask("any length", duration_filter=-1)
    if version >= 2:
        ask("a pattern", transactional_id_pattern=".*" + busy.id[-2:])
        ask("part of an id", transactional_id_pattern=busy.id[:-1])
        ask("an empty pattern", transactional_id_pattern="")
        ask("no pattern at all", transactional_id_pattern="(")


@scenario("Java tools")
def kafka_transactions(s: Session) -> None:
    """Kafka's own tool for transactions, and its reader of the state topic."""
    topic, txn = s.topic(), Transaction(s).init()
    txn.produce("a write", topic, 12)
    main = f"{TOOLS}.TransactionsCommand"
    bootstrap = ("--bootstrap-server", s.broker.bootstrap)
    status, text = run(main, *bootstrap, "list")
    rows = [line.split() for line in text.splitlines() if txn.id in line]
    s.note("listed", (status, [(row[0], row[-1]) for row in rows]))
    status, text = run(main, *bootstrap, "describe", "--transactional-id", txn.id)
    (row,) = [line.split() for line in text.splitlines() if txn.id in line]
    s.note("described", (status, [row[1], *row[3:6], row[-1]]))
    status, text = run(main, *bootstrap, "describe-producers", "--topic", topic, "--partition", "0")
    s.note("its producer", (status, len(text.splitlines())))
    status, text = run(
        main, *bootstrap, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "15"
    )
    s.note("none hangs", (status, topic in text))
    txn.end("the end", 5, commits=False)
    txn.until("CompleteAbort")
    written = []
    for log in sorted(s.broker.data_dir.glob("__transaction_state-*/*.log")):
        words = ("--transaction-log-decoder", "--files", str(log))
        status, text = run(f"{TOOLS}.DumpLogSegments", *words)
        for line in text.splitlines():
            if f"transactionalId={txn.id}" in line or f'"{txn.id}"' in line:
                written.append(re.findall(r"state=(\w+)|transactionStatus\D+(\d)", line))
    assert written, "the decoder knows the state topic in other words"
    s.note("read by DumpLogSegments", written)
