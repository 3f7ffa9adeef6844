"""Coordinators that stop, move or stall in the middle of a transaction.

The worst orders that we could think of, one test each: a decision without its markers, markers
whose answers were lost, a write that is pending while the coordinator moves, a time-out or another
producer against an end, and the same at the last epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from moldau.broker.coordination.transactions.held import HeldTransaction
from moldau.broker.coordination.transactions.machine import LAST_CLIENT_EPOCH
from moldau.broker.coordination.transactions.markers import Sending
from moldau.broker.coordination.transactions.transaction import Identity
from moldau.broker.server import Broker as Server
from moldau.cluster.state.topics import PartitionState
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.api.transactions.producing import TV1, TV2, Producer
from tests.broker.wire_client import Client, inside

STATE = "__transaction_state"


@pytest.fixture
def broker() -> Iterator[Broker]:
    one = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
    with Broker(one) as broker, Client(broker) as client:
        client.create("topic")
        yield broker


@pytest.fixture(params=[TV1, TV2])
def producer(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Producer]:
    producer = Producer(broker, request.param).init()
    yield producer
    producer.client.close()


def restart(broker: Broker, *producers: Producer) -> None:
    for each in producers:
        each.client.close()
    broker.stop()
    broker.start()
    for each in producers:
        each.client = Client(broker)
        until(each.state, "transactions to be read back")


def move(broker: Broker, leader: int, isr: tuple[int, ...] = (0,)) -> None:
    """Give the coordinator's partition another leader, in another epoch, as a controller would."""

    def become(server: Server) -> None:
        partition = server.partitions[STATE, 0]
        epoch = partition.leader_epoch + 1
        partition.become(PartitionState(tuple({0, *isr}), isr, leader, epoch))
        server.transactions.partition_changed(partition)
        partition.wake()

    inside(broker, become)


def block_markers(broker: Broker) -> list[tuple[Any, ...]]:
    """Have no markers written from here on; returns what would have been."""
    sent: list[tuple[Any, ...]] = []

    def block(server: Server) -> None:
        def send(*arguments: Any) -> None:
            sent.append(arguments)

        server.transactions._markers.send = send  # type: ignore[method-assign,assignment]

    inside(broker, block)
    return sent


def last_stable(broker: Broker, topic: str = "topic") -> tuple[int, int]:
    """The last stable offset and the end."""
    with Client(broker) as client:
        answer = client.fetch(topic, 0, isolation_level=1)
        return int(answer.last_stable_offset), client.end_of(topic)


def in_background(producer: Producer, *, commits: bool) -> Callable[[], int]:
    """Send an end, and return what waits for its error."""
    version = 5 if producer.dialect == TV2 else 3
    producer.client.send(Api.END_TXN, version, **producer.who, committed=commits)
    return lambda: int(producer.client.receive().error_code)


@pytest.mark.parametrize("commits", [True, False])
def test_a_coordinator_that_is_loaded_finishes_what_was_decided(
    broker: Broker, producer: Producer, commits: bool
) -> None:
    producer.produce("topic", b"x")
    block_markers(broker)
    producer.end(commits=commits)
    assert producer.state() == ("PrepareCommit" if commits else "PrepareAbort")
    assert last_stable(broker) == (0, 1)
    restart(broker, producer)
    producer.until("CompleteCommit" if commits else "CompleteAbort")
    assert last_stable(broker) == (2, 2)
    producer.produce("topic", b"y")
    producer.end(commits=True)


def test_markers_whose_answers_were_lost_are_written_again(
    broker: Broker, producer: Producer
) -> None:
    """KAFKA-19999: of TV2 they carry the epoch that the leader knows already."""
    producer.produce("topic", b"x")

    def lose(server: Server) -> None:
        server.transactions._complete = lambda *_: None  # type: ignore[method-assign]

    inside(broker, lose)
    producer.end(commits=True)
    until(lambda: last_stable(broker) == (2, 2), "the marker")
    assert producer.state() == "PrepareCommit"
    restart(broker, producer)
    producer.until("CompleteCommit")
    assert last_stable(broker) == (3, 3)
    producer.produce("topic", b"y")
    producer.end(commits=True)
    producer.until("CompleteCommit")
    assert last_stable(broker) == (5, 5)


def test_an_open_transaction_goes_on_with_the_next_coordinator(
    broker: Broker, producer: Producer
) -> None:
    producer.produce("topic", b"x")
    restart(broker, producer)
    assert producer.state() == "Ongoing"
    producer.produce("topic", b"y")
    producer.end(commits=True)
    producer.until("CompleteCommit")
    assert last_stable(broker) == (3, 3)


def test_a_retry_finds_the_answer_with_another_coordinator(
    broker: Broker, producer: Producer
) -> None:
    """The answer to EndTxn is lost with the coordinator that gave it."""
    producer.produce("topic", b"x")
    first = producer.ask_end(commits=True)
    producer.until("CompleteCommit")
    move(broker, 7)
    assert producer.ask_end(commits=True).error_code == Error.NOT_COORDINATOR
    move(broker, 0)
    until(producer.state, "transactions to be read back")
    again = producer.ask_end(commits=True)
    assert again.error_code == 0
    if producer.dialect == TV2:
        assert again.producer_epoch == first.producer_epoch
    assert last_stable(broker) == (2, 2)


def test_a_coordinator_that_moved_away_does_not_finish(broker: Broker, producer: Producer) -> None:
    """Its markers come late, or their answers do, when another has long gone on."""
    producer.produce("topic", b"x")
    sent = block_markers(broker)
    producer.end(commits=True)
    ((_, marker, is_wanted, done),) = sent
    move(broker, 7)
    assert not is_wanted()
    move(broker, 0)
    until(lambda: len(sent) == 2, "the next coordinator to carry on")
    (_, later, still_wanted, _) = sent[1]
    assert still_wanted()
    assert later.coordinator_epoch == marker.coordinator_epoch + 2
    ends = inside(broker, lambda server: server.partitions[STATE, 0].log.log_end)
    # What is left of the first sending ends without a word.
    late = Sending("t", marker, is_wanted, done)
    inside(broker, lambda server: late.written(marker.partitions))
    assert inside(broker, lambda server: server.partitions[STATE, 0].log.log_end) == ends
    assert producer.state() == "PrepareCommit"
    restart(broker, producer)
    producer.until("CompleteCommit")


def test_a_write_that_is_pending_when_the_coordinator_moves_is_found_by_the_next(
    broker: Broker, producer: Producer
) -> None:
    producer.produce("topic", b"x")
    move(broker, 0, (0, 7))
    until(producer.state, "transactions to be read back")
    answer = in_background(producer, commits=True)
    until(lambda: held(broker, producer).is_pending, "the end")
    other = Producer(broker, producer.dialect, producer.id)
    # While the replica lacks the decision, nobody else can decide anything.
    assert other.ask_init().error_code == Error.CONCURRENT_TRANSACTIONS
    assert other.state() == "Ongoing"
    move(broker, 7)
    assert answer() == Error.NOT_COORDINATOR
    move(broker, 0)
    producer.until("CompleteCommit")
    assert last_stable(broker) == (2, 2)
    other.client.close()


def pend(broker: Broker, producer: Producer) -> None:
    """Let the next writes of the coordinator wait for a replica that does not come."""
    move(broker, 0, (0, 7))
    until(producer.state, "transactions to be read back")


def release(broker: Broker) -> None:
    def drop(server: Server) -> None:
        partition = server.partitions[STATE, 0]
        partition.become(PartitionState((0,), (0,), 0, partition.leader_epoch))
        partition.wake()

    inside(broker, drop)


def time_out(broker: Broker) -> None:
    def look(server: Server) -> Any:
        later = server.node.now_ms() + 3_600_000
        server.transactions._host.now_ms = lambda: later  # type: ignore[method-assign]
        return server.node.spawn(server.transactions.abort_timed_out())

    inside(broker, look)


def test_an_end_that_comes_before_the_time_out_wins(broker: Broker, producer: Producer) -> None:
    producer.produce("topic", b"x")
    pend(broker, producer)
    answer = in_background(producer, commits=True)
    until(lambda: held(broker, producer).is_pending, "the end")
    time_out(broker)
    release(broker)
    assert answer() == 0
    producer.until("CompleteCommit")


def test_an_end_that_comes_after_the_time_out_is_fenced(broker: Broker, producer: Producer) -> None:
    producer.produce("topic", b"x")
    pend(broker, producer)
    time_out(broker)
    until(lambda: held(broker, producer).is_pending, "the abort")
    assert in_background(producer, commits=True)() == Error.CONCURRENT_TRANSACTIONS
    release(broker)
    producer.until("CompleteAbort")
    assert in_background(producer, commits=True)() == Error.PRODUCER_FENCED
    assert last_stable(broker) == (2, 2)


def test_another_producer_that_comes_while_an_end_is_written_waits_for_it(
    broker: Broker, producer: Producer
) -> None:
    producer.produce("topic", b"x")
    pend(broker, producer)
    answer = in_background(producer, commits=True)
    until(lambda: held(broker, producer).is_pending, "the end")
    other = Producer(broker, producer.dialect, producer.id)
    assert other.ask_init().error_code == Error.CONCURRENT_TRANSACTIONS
    release(broker)
    assert answer() == 0
    other.init()
    assert other.epoch == producer.epoch + (2 if producer.dialect == TV2 else 1)
    assert last_stable(broker) == (2, 2), "it is committed, not aborted"
    other.client.close()


def test_a_write_is_verified_while_a_partition_is_being_added(
    broker: Broker, producer: Producer
) -> None:
    """KAFKA-14904: a transition that is pending must not stop the writes of the transaction."""
    with Client(broker) as client:
        client.create("other")
    producer.produce("topic", b"x")
    pend(broker, producer)
    adding = Producer(broker, TV1, producer.id)
    adding.producer_id, adding.epoch = producer.producer_id, producer.epoch
    topics = [{"name": "other", "partitions": [0]}]
    who = {f"v3_and_below_{key}": value for key, value in adding.who.items()}
    adding.client.send(Api.ADD_PARTITIONS_TO_TXN, 0, **who, v3_and_below_topics=topics)
    until(lambda: held(broker, producer).is_pending, "the addition")
    assert producer.ask_produce("topic", b"y").error_code == 0
    transaction = {
        "transactional_id": producer.id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "verify_only": True,
        "topics": [{"name": "topic", "partitions": [0]}],
    }
    with Client(broker) as client:
        verified = client.ask(Api.ADD_PARTITIONS_TO_TXN, 5, transactions=[transaction])
    (result,) = verified.results_by_transaction
    assert result.topic_results[0].results_by_partition[0].partition_error_code == 0
    release(broker)
    assert adding.client.receive().results_by_topic_v3_and_below
    adding.client.close()


# Epochs run out


def held(broker: Broker, producer: Producer) -> HeldTransaction:
    return inside(broker, lambda server: next(iter(server.transactions.shards)).by_id[producer.id])


def set_epoch(broker: Broker, producer: Producer, epoch: int) -> None:
    """Let the producer have had that many epochs."""

    def change(server: Server) -> None:
        found = next(iter(server.transactions.shards)).by_id[producer.id]
        assert found.value is not None
        found.value = replace(found.value, producer=Identity(producer.producer_id, epoch))

    inside(broker, change)
    producer.epoch = epoch


def test_a_producer_of_tv2_gets_another_id_when_its_epochs_run_out_even_if_all_is_lost(
    broker: Broker,
) -> None:
    """KAFKA-20310: the new id must be in the log before the producer may hear of it."""
    producer = Producer(broker, TV2).init()
    set_epoch(broker, producer, LAST_CLIENT_EPOCH - 1)
    producer.produce("topic", b"x")
    producer.end(commits=True)
    old = producer.who
    assert producer.epoch == LAST_CLIENT_EPOCH
    producer.produce("topic", b"y")
    block_markers(broker)
    first = producer.ask_end(commits=True)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert first.producer_id != producer.producer_id
    # The answer is lost, and so is the coordinator.
    restart(broker, producer)
    producer.until("CompleteCommit")
    again = producer.ask_end(commits=True, **old)
    assert (again.error_code, again.producer_epoch) == (0, 0)
    assert again.producer_id == first.producer_id
    producer.become(again)
    producer.produce("topic", b"z")
    producer.end(commits=True)
    producer.until("CompleteCommit")
    assert last_stable(broker) == (6, 6)
    assert producer.ask_end(commits=True, **old).error_code == Error.INVALID_PRODUCER_ID_MAPPING
    producer.client.close()


@pytest.mark.parametrize("epoch", [LAST_CLIENT_EPOCH - 1, LAST_CLIENT_EPOCH])
def test_a_producer_at_its_last_epoch_can_be_fenced(
    broker: Broker, producer: Producer, epoch: int
) -> None:
    """KAFKA-20090, KAFKA-18660: no epoch overflows, and the next producer gets another id."""
    set_epoch(broker, producer, epoch)
    producer.produce("topic", b"x")
    other = Producer(broker, producer.dialect, producer.id).init()
    assert (other.producer_id != producer.producer_id, other.epoch) == (True, 0)
    assert last_stable(broker) == (2, 2)
    code = producer.ask_end(commits=True, version=3).error_code
    assert code in (Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_ID_MAPPING)
    other.produce("topic", b"y")
    other.end(commits=True)
    other.client.close()


def test_markers_are_tried_again_whatever_went_wrong(broker: Broker, producer: Producer) -> None:
    """The transaction is decided, so an accident of ours must not leave it open for ever."""
    producer.produce("topic", b"x")

    def fail_once(server: Server) -> None:
        markers = server.transactions._markers
        write = markers._write_here

        async def fail(marker: Any) -> Any:
            markers._write_here = write
            raise ZeroDivisionError

        markers._write_here = fail

    inside(broker, fail_once)
    producer.end(commits=True)
    producer.until("CompleteCommit")
    assert last_stable(broker) == (2, 2)
