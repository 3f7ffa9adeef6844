"""Transactions as partitions see them: markers, verified writes, committed reads, files."""

from __future__ import annotations

from typing import Any

from conformance.cases.tools import dump, fields
from conformance.registry import case, scenario
from conformance.session import Session
from moldau.wire.apis import Api
from moldau.wire.errors import Error

_INIT_VERSION = 4
_ADD_VERSION = 3
_END_VERSION = 3


class Producer:
    """A transactional producer that speaks the protocol by hand, in transactions version 1."""

    def __init__(self, s: Session, *, epoch: int = 0) -> None:
        self.s = s
        self.id = s.name("txn")
        self.sequence: dict[tuple[str, int], int] = {}

        def coordinator_is_there() -> bool:
            answer = s.quietly(
                Api.INIT_PRODUCER_ID,
                _INIT_VERSION,
                transactional_id=self.id,
                transaction_timeout=60_000,
                producer_id=-1,
                producer_epoch=-1,
            )
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            return int(answer.error_code) == 0 and self.epoch == epoch

        s.quietly(Api.FIND_COORDINATOR, 3, key=self.id, key_type=1)
        s.until(coordinator_is_there, "coordinator of transactions")

    def add(self, topic: str, *partitions: int) -> None:
        def added() -> bool:
            answer = self.s.quietly(
                Api.ADD_PARTITIONS_TO_TXN,
                _ADD_VERSION,
                v3_and_below_transactional_id=self.id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[{"name": topic, "partitions": list(partitions)}],
            )
            results = answer.results_by_topic_v3_and_below[0].results_by_partition
            return all(int(each.partition_error_code) == 0 for each in results)

        self.s.until(added, "partition in the transaction")

    def batch(self, topic: str, *values: bytes, partition: int = 0, **more: Any) -> bytes:
        sequence = self.sequence.get((topic, partition), 0)
        self.sequence[topic, partition] = sequence + len(values)
        given = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
            "is_transactional": True,
        }
        return self.s.batch(*values, **given | more)

    def produce(
        self, what: str, version: int, topic: str, batch: bytes, *, named: bool = True
    ) -> int:
        """Write to a partition, and keep the error for the comparison."""
        key = {"topic_id": self.s.topic_id(topic)} if version >= 13 else {"name": topic}
        found: list[tuple[int, int]] = []

        def settled() -> bool:
            answer = self.s.quietly(
                Api.PRODUCE,
                version,
                transactional_id=self.id if named else None,
                acks=-1,
                timeout=10_000,
                topic_data=[key | {"partition_data": [{"index": 0, "records": batch}]}],
            )
            result = answer.responses[0].partition_responses[0]
            found.append((int(result.error_code), result.base_offset))
            # While the coordinator is still ending a transaction, clients are to try again.
            return found[-1][0] not in (Error.NOT_ENOUGH_REPLICAS, Error.CONCURRENT_TRANSACTIONS)

        self.s.until(settled, "answer of the coordinator")
        self.s.note(what, found[-1], Api.PRODUCE)
        return found[-1][0]

    def end(self, *, commits: bool) -> None:
        def ended() -> bool:
            answer = self.s.quietly(
                Api.END_TXN,
                _END_VERSION,
                transactional_id=self.id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commits,
            )
            return int(answer.error_code) == 0

        self.s.until(ended, "end of the transaction")


def _until_stable(s: Session, topic: str, end: int) -> None:
    """Until the markers of all transactions are written."""

    def is_stable() -> bool:
        asked = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
        answer = s.quietly(
            Api.LIST_OFFSETS,
            5,
            replica_id=-1,
            isolation_level=1,
            topics=[{"name": topic, "partitions": [asked]}],
        )
        return bool(answer.topics[0].partitions[0].offset == end)

    s.until(is_stable, "end of the last transaction")


def _marker(*topics: tuple[str, list[int]], **more: Any) -> dict[str, Any]:
    return {
        "producer_id": 4_000_001,
        "producer_epoch": 5,
        "transaction_result": True,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics],
        "coordinator_epoch": 3,
        "transaction_version": 0,
    } | more


@case(Api.WRITE_TXN_MARKERS)
def markers_of_a_tool(s: Session, version: int) -> None:
    """Anybody may end a transaction who may alter the cluster."""
    topic = s.topic(2)

    def write(what: str, **more: Any) -> None:
        marker = _marker((topic, [0, 1]), **more)
        s.ask(what, Api.WRITE_TXN_MARKERS, version, markers=[marker])

    s.ask("nothing", Api.WRITE_TXN_MARKERS, version, markers=[])
    write("a producer that is not known")
    write("the same again")
    write("an abort in place of the commit", transaction_result=False)
    write("an older producer epoch", producer_epoch=4)
    write("an older coordinator", coordinator_epoch=2)
    write("a newer producer epoch and an older coordinator", producer_epoch=6, coordinator_epoch=2)
    write("a newer coordinator", coordinator_epoch=4)
    if version >= 2:
        write("version 2, the same epoch", coordinator_epoch=4, transaction_version=2)
        write("version 2, a newer epoch", coordinator_epoch=4, transaction_version=2,
              producer_epoch=6)  # fmt: skip
        write("version 2, an older epoch", coordinator_epoch=4, transaction_version=2)
    missing = _marker(("nobody-made-this", [0]))
    s.ask("an unknown topic", Api.WRITE_TXN_MARKERS, version, markers=[missing])
    beyond = _marker((topic, [7]))
    s.ask("an unknown partition", Api.WRITE_TXN_MARKERS, version, markers=[beyond])


@case(Api.WRITE_TXN_MARKERS)
def markers_of_a_tool_in_an_open_transaction(s: Session, version: int) -> None:
    """What a tool has ended in a partition the coordinator and the producer still take for open."""
    for dialect in (10, 12):
        for commits in (True, False):
            topic, producer = s.topic(), Producer(s, epoch=1)
            if dialect < 12:
                producer.add(topic, 0)
            producer.produce("a write", dialect, topic, producer.batch(topic, b"x"))

            def write(what: str, raises: int, coordinator_epoch: int, commits: bool) -> None:
                marker = _marker(
                    (topic, [0]),  # noqa: B023
                    producer_id=producer.producer_id,  # noqa: B023
                    producer_epoch=producer.epoch + raises,  # noqa: B023
                    transaction_result=commits,
                    coordinator_epoch=coordinator_epoch,
                )
                s.ask(what, Api.WRITE_TXN_MARKERS, version, markers=[marker])

            write("by an earlier epoch", -1, 0, commits)
            write("by its epoch", 0, 0, commits)
            write("once more", 0, 0, commits)
            wanted = [{"name": topic, "partition_indexes": [0]}]
            found = s.quietly(Api.DESCRIBE_PRODUCERS, 0, topics=wanted).topics[0].partitions[0]
            s.note(
                "its producers",
                [
                    (each.producer_epoch - producer.epoch, each.current_txn_start_offset)
                    for each in found.active_producers
                ],
            )
            producer.produce("the next write", dialect, topic, producer.batch(topic, b"y"))
            write("by a later epoch, of a later coordinator", 1, 7, commits)
            producer.produce("one more write", dialect, topic, producer.batch(topic, b"z"))
            write("by an earlier coordinator", 1, 3, commits)


@case(Api.DESCRIBE_PRODUCERS)
def producers_of_a_partition(s: Session, version: int) -> None:
    topic = s.topic(2)

    def describe(what: str, name: str, *indexes: int) -> None:
        wanted = {"name": name, "partition_indexes": list(indexes)}
        answer = s.quietly(Api.DESCRIBE_PRODUCERS, version, topics=[wanted])
        for each in answer.topics[0].partitions:
            # The time of the write here, that of the last record there.
            producers = [
                (
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.last_sequence,
                    producer.coordinator_epoch,
                    producer.current_txn_start_offset,
                )
                for producer in each.active_producers
            ]
            found = (each.partition_index, int(each.error_code), producers)
            s.note(what, found, Api.DESCRIBE_PRODUCERS)

    describe("none", topic, 0, 1)
    s.fill(topic, s.batch(b"a", b"b", producer_id=4_000_002, producer_epoch=1, base_sequence=0))
    describe("an idempotent one", topic, 0)
    marker = _marker((topic, [0]), producer_id=4_000_002)
    s.quietly(Api.WRITE_TXN_MARKERS, 1, markers=[marker])
    describe("after a marker", topic, 0)
    describe("an unknown partition", topic, 9, -1)
    describe("an unknown topic", "nobody-made-this", 0)
    describe("what is no name", "not/a name", 0)


@case(Api.PRODUCE)
def transactional_writes(s: Session, version: int) -> None:
    """In and out of a transaction; what is no part of one, and who is not its producer."""
    topic, other = s.topic(), s.topic()
    producer = Producer(s)
    batch = producer.batch(topic, b"x")
    if version < 12:
        producer.produce("a partition that was not added", version, topic, batch)
        producer.add(topic, 0)
    producer.produce("the first write", version, topic, batch)
    producer.produce("the same again", version, topic, batch)
    second = producer.batch(topic, b"y", b"z")
    producer.produce("without a transactional id", version, topic, second, named=False)
    producer.produce("the second write", version, topic, second)
    gap = producer.batch(topic, b"g", base_sequence=9)
    producer.produce("a gap", version, topic, gap)
    plain = producer.batch(topic, b"p", base_sequence=3, is_transactional=False)
    producer.produce("a plain write in the transaction", version, topic, plain)
    old = producer.batch(topic, b"o", producer_epoch=producer.epoch - 1, base_sequence=3)
    if producer.epoch > 0:
        producer.produce("an older epoch", version, topic, old)
    stranger = s.batch(
        b"s", producer_id=4_000_009, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    producer.produce("another producer under this id", version, other, stranger)
    control = producer.batch(topic, b"c", base_sequence=3, is_control=True)
    producer.produce("a marker", version, topic, control)
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    for isolation in (0, 1):
        answer = s.quietly(
            Api.FETCH,
            11,
            replica_id=-1,
            max_wait=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=isolation,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": topic, "partitions": [wanted]}],
            rack_id="",
        )
        found = answer.responses[0].partitions[0]
        ends = (found.high_watermark, found.last_stable_offset, len(found.records or b""))
        s.note(f"the open transaction, isolation {isolation}", ends, Api.FETCH)
    if version < 12:
        producer.end(commits=False)
        # Until the marker is there the log knows nothing of the end.
        _until_stable(s, topic, 4)
        late = producer.batch(topic, b"late", base_sequence=3)
        producer.produce("a write after the end", version, topic, late)
        producer.add(topic, 0)
        used = producer.batch(topic, b"q", b"r", base_sequence=1)
        producer.produce("sequences of the ended transaction", version, topic, used)


@scenario("Java tools")
def dump_transactions(s: Session) -> None:
    """Kafka's own reader on markers, and on all that is written beside them."""
    topic = s.topic(configs={"segment.bytes": "1048576"})
    producer, late = Producer(s), Producer(s)
    for number in range(4):
        producer.add(topic, 0)
        batch = producer.batch(topic, b"value-%d" % number)
        producer.produce(f"write {number}", 11, topic, batch)
        producer.end(commits=number % 2 == 1)

    _until_stable(s, topic, 8)
    late.add(topic, 0)
    late.produce("an open write", 11, topic, late.batch(topic, b"open"))
    # Enough for a second segment: the files of the first are then finished.
    for _ in range(12):
        s.fill(topic, s.batch(b"x" * 95_000))
    logs = sorted((s.broker.data_dir / f"{topic}-0").glob("*.log"))
    s.note("segments", [each.name for each in logs])
    text = dump(s, "the log", "--print-data-log", "--files", str(logs[0]))
    wanted = ("baseOffset", "lastOffset", "isTransactional", "isControl", "endTxnMarker", "offset",
              "coordinatorEpoch", "isvalid")  # fmt: skip
    for line in text.splitlines():
        if line.startswith(("base", "| offset")):
            known = fields(line)
            s.note("a line", {name: known[name] for name in wanted if name in known})
    for kind in ("index", "timeindex"):
        words = ("--verify-index-only", "--files", str(logs[0].with_suffix(f".{kind}")))
        text = dump(s, f"the {kind}", *words).lower()
        s.note(f"the {kind} is sound", "mismatch" not in text and "fail" not in text)
    text = dump(s, "the aborted", "--files", str(logs[0].with_suffix(".txnindex")))
    aborted = [fields(line) for line in text.splitlines() if "producerId" in line]
    assert len(aborted) == 2, text
    for each in aborted:
        s.note("aborted", {name: value for name, value in each.items() if name != "producerId"})
    text = dump(s, "the producers", "--files", str(logs[1].with_suffix(".snapshot")))
    # The last of several lines counts.
    states = {
        known["producerId"]: known
        for known in map(fields, text.splitlines())
        if "producerId" in known
    }
    told = ("producerEpoch", "coordinatorEpoch", "currentTxnFirstOffset", "lastSequence",
            "lastOffset")  # fmt: skip
    for one in (producer, late):
        known = states[str(one.producer_id)]
        s.note("a producer", {name: known[name] for name in told if name in known})
