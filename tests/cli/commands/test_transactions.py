"""`moldau transactions` against a real broker: open, decided, hanging and hidden ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.peer.cluster import Cluster
from moldau.peer.hanging import find_hanging
from moldau.peer.transactions import DescribedTransaction, OpenTransaction, Transactions
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.acls import CLUSTER_NAME, Operation, Resource
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.api.transactions.producing import TV1, TV2, Producer
from tests.broker.principals import Person, codes, guarded
from tests.broker.wire_client import Client, append_open
from tests.cli.conftest import Ended, Run

HANGING = 9


@pytest.fixture(params=[TV1, TV2])
def producer(
    request: pytest.FixtureRequest, moldau_session_broker: Broker, fresh_name: str
) -> Iterator[Producer]:
    made = Producer(moldau_session_broker, request.param, f"cli-{fresh_name}").init()
    # The first one has the coordinators begin their work, which takes some of them a moment.
    until(lambda: made.client.ask(Api.LIST_TRANSACTIONS, 0).error_code == 0)
    yield made
    made.client.close()


def last_stable(broker: Broker, topic: str) -> int:
    with Client(broker) as client:
        return int(client.fetch(topic, 0, isolation_level=1).last_stable_offset)


def test_transactions_are_listed_with_their_states(
    moldau: Run, topic: str, producer: Producer
) -> None:
    words = ("transactions", "list", "--id", f"{producer.id}.*")
    (row,) = moldau(*words, "--json").json
    assert (row["transactional_id"], row["state"]) == (producer.id, "Empty")
    assert (row["producer_id"], row["open_seconds"]) == (producer.producer_id, None)
    producer.produce(topic, b"x")
    (row,) = moldau(*words, "--json").json
    assert (row["state"], row["coordinator"]) == ("Ongoing", 0)
    assert row["open_seconds"] >= 0
    shown = moldau(*words, "--state", "Ongoing")
    assert shown.status == 0
    heading, line = shown.out.splitlines()
    assert heading.split("  ")[0] == "TRANSACTIONAL ID"
    assert line.split()[:2] == [producer.id, "Ongoing"]
    by_producer = ("transactions", "list", "--producer-id", str(producer.producer_id), "--json")
    assert [each["transactional_id"] for each in moldau(*by_producer).json] == [producer.id]
    for nothing in (("--state", "Dead"), ("--longer-than", "1000"), ("--producer-id", "123456")):
        ended = moldau(*words, *nothing)
        assert (ended.status, ended.out) == (0, "")
        assert "no transactions" in ended.err
    producer.end(commits=True)


def test_a_wrong_filter_is_refused(moldau: Run) -> None:
    ended = moldau("transactions", "list", "--state", "Sleeping")
    assert ended.status == 1
    assert "Sleeping" in ended.err
    ended = moldau("transactions", "list", "--id", "(")
    assert ended.status == 1
    assert "INVALID_REGULAR_EXPRESSION" in ended.err


def test_a_transaction_is_described(moldau: Run, topic: str, producer: Producer) -> None:
    found = moldau("transactions", "describe", producer.id, "--json").json
    assert (found["state"], found["started_ms"], found["partitions"]) == ("Empty", None, [])
    producer.produce(topic, b"x", partition=1)
    found = moldau("transactions", "describe", producer.id, "--json").json
    assert found["partitions"] == [{"topic": topic, "partition": 1}]
    assert (found["producer_id"], found["producer_epoch"]) == (producer.producer_id, producer.epoch)
    assert (found["timeout_ms"], found["state"]) == (60_000, "Ongoing")
    shown = moldau("transactions", "describe", producer.id)
    assert f"{producer.id}: Ongoing, open for " in shown.out
    assert f"partitions   {topic}-1" in shown.out
    assert "timeout      1 m 0 s" in shown.out
    ended = moldau("transactions", "describe", "nobody-has-this-id")
    assert ended.status == 1
    assert "no transactional id nobody-has-this-id" in ended.err
    producer.end(commits=True)


def test_one_that_no_timeout_ends_says_so(
    moldau: Run, moldau_session_broker: Broker, topic: str, fresh_name: str
) -> None:
    producer = Producer(moldau_session_broker, TV2, f"cli-{fresh_name}")
    producer.init(version=6, enable2_pc=True)
    producer.produce(topic, b"x")
    assert "none (two-phase commit)" in moldau("transactions", "describe", producer.id).out
    assert moldau("transactions", "describe", producer.id, "--json").json["timeout_ms"] is None
    assert moldau("transactions", "abort", producer.id, "--yes").status == 0
    assert last_stable(moldau_session_broker, topic) == 2
    producer.client.close()


def test_abort_ends_a_transaction_everywhere_and_fences_its_producer(
    moldau: Run, moldau_session_broker: Broker, topic: str, producer: Producer
) -> None:
    producer.produce(topic, b"x")
    declined = moldau("transactions", "abort", producer.id, typed="n\n")
    assert declined.status == 1
    assert f"Abort {producer.id}, open for " in declined.err
    assert f"in {topic}-0, and fence its producer?" in declined.err
    assert producer.state() == "Ongoing"
    ended = moldau("transactions", "abort", producer.id, typed="y\n")
    assert ended.status == 0, ended.err
    assert ended.out == f"{producer.id}: aborted\n"
    # It is over when the command has ended.
    assert last_stable(moldau_session_broker, topic) == 2
    answer = producer.ask_end(commits=True)
    assert answer.error_code in (Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH)
    again = moldau("transactions", "abort", producer.id, "--yes")
    assert again.status == 1
    assert "has no open transaction: its state is Empty" in again.err
    assert moldau("consume", topic, "--from-beginning", "--committed", "--timeout", "0.2").out == ""


def test_abort_does_not_hit_the_next_transaction(
    moldau: Run, topic: str, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the person thinks, the transaction is committed and another begins."""
    producer.produce(topic, b"first")

    def confirmed_late(question: str, yes: bool) -> None:
        producer.end(commits=True)
        producer.until("CompleteCommit")
        until(lambda: moldau_second_begins(producer, topic), "another transaction")

    monkeypatch.setattr("moldau.cli.commands.transactions.confirm", confirmed_late)
    ended = moldau("transactions", "abort", producer.id)
    assert ended.status == 1
    assert "another has begun" in ended.err
    producer.end(commits=True)


def moldau_second_begins(producer: Producer, topic: str) -> bool:
    producer.produce(topic, b"second")
    return producer.state() == "Ongoing"


def test_abort_wants_an_id_or_a_place(moldau: Run, topic: str) -> None:
    assert moldau("transactions", "abort").status == 2
    assert moldau("transactions", "abort", "--topic", topic, "--partition", "0").status == 2
    words = ("--topic", topic, "--partition", "0", "--producer-id", "1")
    assert moldau("transactions", "abort", "some-id", *words).status == 2
    ended = moldau("transactions", "abort", *words, "--yes")
    assert ended.status == 1
    assert f"producer 1 has no open transaction on {topic}-0" in ended.err
    ended = moldau("transactions", "abort", "nobody-has-this-id", "--yes")
    assert ended.status == 1
    assert "no transactional id" in ended.err


def test_a_hanging_transaction_is_found_and_ended(
    moldau: Run, moldau_session_broker: Broker, topic: str, producer: Producer
) -> None:
    producer.produce(topic, b"known", partition=1)
    append_open(moldau_session_broker, topic, b"nobody knows")
    (found,) = moldau("transactions", "hanging", "--topic", topic, "--json").json
    assert (found["topic"], found["partition"]) == (topic, 0)
    assert (found["producer_id"], found["start_offset"]) == (HANGING, 0)
    shown = moldau("transactions", "hanging")
    assert topic in shown.out
    command = f"transactions abort --topic {topic} --partition 0 --producer-id {HANGING}"
    assert f"try: moldau {command}" in shown.err
    late = moldau("transactions", "hanging", "--topic", topic, "--older-than", "1000")
    assert (late.status, late.out) == (0, "")
    words = command.split()
    assert moldau(*words, typed="n\n").status == 1
    assert last_stable(moldau_session_broker, topic) == 0
    ended = moldau(*words, "--yes", "--json")
    assert ended.json["aborted"] == {"topic": topic, "partition": 0, "producer_id": HANGING}
    assert last_stable(moldau_session_broker, topic) == 2
    assert moldau("transactions", "hanging", "--topic", topic, "--json").json == []
    # The one that its coordinator knows is not for this.
    known = str(producer.producer_id)
    words = ["transactions", "abort", "--topic", topic, "--partition", "1", "--producer-id", known]
    refused = moldau(*words, "--yes")
    assert refused.status == 1
    assert "does not hang" in refused.err
    assert f"moldau transactions abort {producer.id}" in refused.err
    producer.end(commits=True)


def test_a_transaction_that_ends_while_it_is_looked_at_does_not_hang(
    moldau_session_broker: Broker, topic: str, producer: Producer
) -> None:
    """The coordinator is asked after it ended, so that it knows of no partition any more."""
    producer.produce(topic, b"x")
    host, port = moldau_session_broker.host, moldau_session_broker.port

    class Slow(Transactions):
        def of_producers(self, producer_ids: object) -> list[DescribedTransaction]:
            producer.end(commits=True)
            producer.until("CompleteCommit")
            return super().of_producers(producer_ids)  # type: ignore[arg-type]

    with Cluster([(host, port)]) as cluster:
        assert Transactions(cluster).open_in([(topic, 0)])
        assert find_hanging(Slow(cluster), [(topic, 0)]) == []


def test_coordinators_that_move_meanwhile_are_asked_again(
    moldau_session_broker: Broker, topic: str, producer: Producer
) -> None:
    """A broker that leads a partition of the state topic only for a moment tells nothing of it."""
    producer.produce(topic, b"x")
    host, port = moldau_session_broker.host, moldau_session_broker.port
    asked = []

    class Moving(Transactions):
        def _led_by(self, node: object) -> set[tuple[int, int]]:
            asked.append(node)
            led = super()._led_by(node)  # type: ignore[arg-type]
            # The first time around, one partition was led in another epoch.
            return {(index, epoch + 7 * (len(asked) == 2 and index == 0)) for index, epoch in led}

    with Cluster([(host, port)]) as cluster:
        found = Moving(cluster).of_producers([producer.producer_id])
    assert [each.id for each in found] == [producer.id]
    assert len(asked) == 4
    producer.end(commits=True)


def test_sameness_of_open_transactions_is_where_they_began() -> None:
    one = OpenTransaction(("t", 0), 9, 5, 0, 0, 1000)
    assert one == OpenTransaction(("t", 0), 9, 5, 1, 2, 3000)
    assert one != OpenTransaction(("t", 0), 9, 6, 0, 0, 1000)


def test_no_broker_is_a_clear_error(moldau: Run) -> None:
    ended = moldau("transactions", "list", "--bootstrap", "127.0.0.1:1")
    assert ended.status == 1
    assert "no broker can be reached" in ended.err


def test_committed_messages_are_those_of_committed_transactions(
    moldau: Run, moldau_session_broker: Broker, topic: str, producer: Producer
) -> None:
    for value, commits in ((b"kept", True), (b"dropped", False)):
        producer.produce(topic, value)
        producer.end(commits=commits)
        producer.until("CompleteCommit" if commits else "CompleteAbort")
    producer.produce(topic, b"open")
    words = ("consume", topic, "--partition", "0", "--from-beginning")
    assert moldau(*words, "--max", "3").out.split() == ["kept", "dropped", "open"]

    def some() -> Ended | None:
        ended = moldau(*words, "--committed", "--timeout", "0.5")
        return ended if ended.out else None

    ended = until(some, "as much as comes within half a second")
    assert (ended.status, ended.out.split()) == (0, ["kept"])
    assert f"{topic} partition 0: nothing from offset 4 on is shown until" in ended.err
    producer.end(commits=True)
    producer.until("CompleteCommit")
    ended = moldau(*words, "--committed", "--max", "2")
    assert (ended.out.split(), ended.err) == (["kept", "open"], "")
    group = ("--group", f"group-{topic}", "--committed", "--max", "2")
    assert moldau("consume", topic, "--from-beginning", *group).out.split() == ["kept", "open"]


def test_who_may_not_see_all_ids_is_not_told_that_a_transaction_hangs(moldau: Run) -> None:
    """What is hidden from us looks as if no coordinator knew it."""
    with guarded() as broker, Person(broker, "admin") as admin:
        made = [{"name": "orders", "num_partitions": 1, "replication_factor": 1}]
        assert codes(admin.ask(Api.CREATE_TOPICS, topics=made)) == {0}
        producer = Producer(broker, TV2, "hidden")
        producer.client.close()
        producer.client = admin
        wanted = {"key": "hidden", "key_type": 1}
        until(lambda: codes(admin.ask(Api.FIND_COORDINATOR, 1, **wanted)) == {0}, "coordinator")
        producer.init()
        producer.produce("orders", b"x")
        words = ("transactions", "hanging", "--bootstrap", broker.bootstrap)
        admin.grant("ANONYMOUS", Operation.READ, Resource.TOPIC, "*")
        refused = moldau(*words)
        assert (refused.status, refused.out) == (1, "")
        assert "not all transactional ids can be seen" in refused.err
        assert "moldau acls add" in refused.err
        admin.grant("ANONYMOUS", Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, "*")
        seen = moldau(*words)
        assert (seen.status, seen.out) == (0, ""), seen.err
        # An abort takes rights of its own.
        refused = moldau(
            "transactions", "abort", "hidden", "--yes", "--bootstrap", broker.bootstrap
        )
        assert refused.status == 1
        assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in refused.err
        append_open(broker, "orders", b"y")
        place = ("--topic", "orders", "--partition", "0", "--producer-id", str(HANGING))
        abort = ("transactions", "abort", *place, "--yes", "--bootstrap", broker.bootstrap)
        refused = moldau(*abort)
        assert refused.status == 1
        assert "CLUSTER_AUTHORIZATION_FAILED" in refused.err
        admin.grant("ANONYMOUS", Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
        assert moldau(*abort).status == 0
