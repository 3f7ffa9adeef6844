"""The console against Apache Kafka: every page has its answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.kafka.broker import KafkaBroker
from bench.kafka.jars import java, kafka_jars
from bench.kafka.setup import Setup
from moldau.bench.child import Children
from moldau.bench.errors import Unavailable
from moldau.client.queue.queue import Queue
from moldau.console.settings import ConsoleSettings
from moldau.testing.waiting import until
from tests.console.consoles import RunningConsole

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]

_SMALL = Setup("small", ("-Xms512m", "-Xmx512m", "-XX:+UseSerialGC"))
_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
_HOUR_MS = 3_600_000
WITHIN_S = 60.0

Asked = Callable[[], Any]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Apache Kafka with rights, whose only user may do everything; skips where there is none."""
    try:
        java()
        kafka_jars()
    except Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot be had: {reason}")
    folder = tmp_path_factory.mktemp("kafka")
    with Children(folder) as children:
        broker = KafkaBroker(children, folder / "broker", _SMALL, settings=_SETTINGS)
        broker.start()
        broker.wait_ready()
        try:
            yield broker
        finally:
            broker.discard()


@pytest.fixture(scope="module")
def console(kafka: KafkaBroker) -> Iterator[RunningConsole]:
    with RunningConsole(ConsoleSettings(kafka.bootstrap, sample_every_s=1.0)) as console:
        yield console


@pytest.fixture(scope="module")
def filled(kafka: KafkaBroker, console: RunningConsole) -> RunningConsole:
    """A topic with ten messages, a group and a share group behind it, and an open transaction."""
    console.post("api/topics", {"name": "orders", "partitions": 2}, 201)
    settings = {"bootstrap.servers": kafka.bootstrap}
    producer = Producer(settings)
    long_ago = int(time.time() * 1000) - _HOUR_MS
    for number in range(10):
        value = f'{{"id": {number}}}'
        producer.produce("orders", value, key="k", partition=0, timestamp=long_ago)
    assert producer.flush(WITHIN_S) == 0
    consumer = Consumer(settings | {"group.id": "billing", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)
    consumer.close()
    with Queue(
        "orders", group="workers", start="earliest", ahead=5, bootstrap=kafka.bootstrap
    ) as queue:
        job = queue.take(WITHIN_S)
        assert job is not None
        job.done()
    console.post("api/topics", {"name": "ledger"}, 201)
    transactional = Producer(settings | {"transactional.id": "bank/one"})
    transactional.init_transactions(WITHIN_S)
    transactional.begin_transaction()
    transactional.produce("ledger", "x")
    assert transactional.flush(WITHIN_S) == 0
    return console


def test_the_session_names_the_cluster_and_what_one_may_do(filled: RunningConsole) -> None:
    session = filled.get("api/session")
    assert session["cluster_id"]
    assert {"Create", "Alter"} <= set(session["operations"])


def test_the_overview_counts_and_says_what_is_wrong(filled: RunningConsole) -> None:
    def late() -> list[str]:
        problems = filled.get("api/overview")["problems"]
        return [each["what"] for each in problems if each["where"]["name"] == "billing"]

    (what,) = until(late, "the problem", WITHIN_S)
    assert "6 messages behind" in what
    overview = filled.get("api/overview")
    counts = overview["counts"]
    assert (counts["brokers"], counts["topics"], counts["groups"]) == (1, 2, 2)
    assert (counts["offline"], counts["under_replicated"]) == (0, 0)
    assert [each for each in overview["problems"] if each["severity"] == "error"] == []
    names = "cluster.in_msgs,group:billing.lag_s"
    series = until(lambda: filled.get("api/series", names=names)["series"], "numbers")
    assert set(series) == {"cluster.in_msgs", "group:billing.lag_s"}


def test_the_cluster_is_described(filled: RunningConsole, kafka: KafkaBroker) -> None:
    cluster = filled.get("api/cluster")
    (broker,) = cluster["brokers"]
    assert (broker["id"], broker["port"]) == (kafka.id, kafka.port)
    assert broker["bytes"] > 0
    assert broker["leaders"] == broker["replicas"] > 3
    assert cluster["controller"] == kafka.id
    assert cluster["reassignments"] == []


def test_topics_are_listed_described_and_changed(filled: RunningConsole) -> None:
    topics = {each["name"]: each for each in filled.get("api/topics")["topics"]}
    assert topics["orders"]["partitions"] == 2
    path = "api/topics/orders"
    found = filled.get(path)
    first = found["partitions"][0]
    assert (first["start"], first["end"], first["leader"]) == (0, 10, 1)
    assert "Write" in found["operations"]
    assert {"group": "billing", "lag": 6} in found["groups"]
    changed = filled.send("PATCH", f"{path}/configs", {"set": {"retention.ms": "1000000000"}})
    (retention,) = [each for each in changed if each["name"] == "retention.ms"]
    assert (retention["value"], retention["is_default"]) == ("1000000000", False)
    assert retention["documentation"]
    filled.post("api/topics", {"name": "passing"}, 201)
    filled.post("api/topics/passing/partitions", {"count": 3})
    until(lambda: len(filled.get("api/topics/passing")["partitions"]) == 3, "the partitions")
    filled.send("DELETE", "api/topics/passing")


def test_messages_are_browsed_searched_and_written(filled: RunningConsole) -> None:
    path = "api/topics/orders/messages"
    page = filled.get(path, from_="beginning", limit=5)
    assert [each["value"]["json"]["id"] for each in page["messages"]] == [0, 1, 2, 3, 4]
    assert page["next"]
    written = filled.post("api/topics/ledger/messages", {"value": "y"}, 201)
    assert written["partition"] == 0
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install '.[console]'")
    found = filled.get(path, from_="beginning", filter="value.id = 7")
    assert [each["offset"] for each in found["messages"]] == [7]


def test_a_group_is_described_explained_reset_and_deleted(filled: RunningConsole) -> None:
    rows = {each["group"]: each for each in filled.get("api/groups")["groups"]}
    assert (rows["billing"]["lag"], rows["workers"]["kind"]) == (6, "share")
    assert rows["billing"]["lag_s"] >= 3600
    found = filled.get("api/groups/billing")
    assert [(each["committed"], each["lag"]) for each in found["partitions"]] == [(4, 6)]
    assert filled.get("api/groups/billing/why")["summary"].startswith("billing is 6 messages")
    with_another = {"topic": "orders", "to": "beginning", "partitions": [0]}
    own = "api/groups/passing/reset"
    assert filled.post(own, with_another)["applied"]
    assert filled.get("api/groups/passing")["lag"] == 10
    filled.send("DELETE", "api/groups/passing")
    filled.get("api/groups/passing", 404)


def test_a_share_group_is_described_and_reset(filled: RunningConsole) -> None:
    until(lambda: filled.get("api/groups/workers")["state"] == "empty", "it to be empty", WITHIN_S)
    found = filled.get("api/groups/workers")
    first = found["share"]["partitions"][0]
    # Kafka writes down that a message is finished before it counts the start on.
    assert first["start"] in (0, 1)
    assert (first["end"], first["lag"], found["lag"]) == (10, 9, 9)
    assert first["lag_s"] >= 3600
    move = {"topic": "orders", "to": "end", "partitions": [0]}
    (change,) = filled.post("api/groups/workers/reset", move)["changes"]
    assert (change["from"], change["to"]) == (first["start"], 10)
    assert filled.get("api/groups/workers")["share"]["partitions"][0]["start"] == 10


def test_an_open_transaction_is_described_and_aborted(filled: RunningConsole) -> None:
    rows = {each["id"]: each for each in filled.get("api/transactions")["transactions"]}
    assert rows["bank/one"]["state"] == "Ongoing"
    assert rows["bank/one"]["open_s"] >= 0
    found = filled.get("api/transactions/bank%2Fone")
    assert found["partitions"] == [["ledger", 0]]
    assert "Write" in found["operations"]
    filled.post("api/transactions/bank%2Fone/abort")
    again = filled.get("api/transactions/bank%2Fone")
    assert again["state"] in ("Empty", "CompleteAbort")


def test_users_rules_and_quotas_are_kept(filled: RunningConsole) -> None:
    user = {"name": "ann", "password": "a-long-one"}
    filled.post("api/security/users", user, 201)
    until(lambda: filled.get("api/security/users")["users"], "the user")
    (known,) = filled.get("api/security/users")["users"]
    assert known["name"] == "ann"
    rule = {"principal": "User:ann", "operation": "Read", "resource": "Topic", "name": "orders"}
    filled.post("api/security/acls", rule, 201)
    until(lambda: filled.get("api/security/acls")["acls"], "the rule")
    who = filled.get("api/security/who", resource="topic:orders")
    assert "User:ann" in str(who)
    entity = {"user": "ann"}
    limits = {"entity": entity, "limits": {"request_percentage": 50}}
    filled.send("PATCH", "api/security/quotas", limits)
    quotas = until(lambda: filled.get("api/security/quotas")["quotas"], "the quota")
    assert quotas[0]["entity"] == entity
    filled.send("DELETE", f"api/security/acls?{'&'.join(f'{k}={v}' for k, v in rule.items())}")
    filled.send("DELETE", "api/security/users/ann")
    assert filled.get("api/security/audit")["records"][0]["action"] == "deleted user"


def test_pages_of_what_this_cluster_has_not_are_empty(filled: RunningConsole) -> None:
    assert filled.get("api/pipelines")["pipelines"] == []
    assert filled.get("api/dead-letters")["topics"] == []
    assert filled.get("api/schemas", 404)["error"]["code"] == "no_registry"
    assert filled.get("api/lake")["tables"] == []


def test_dead_letters_go_back_to_where_they_came_from(filled: RunningConsole) -> None:
    from tests.console.api.test_dead_letters import letter

    for name in ("bills", "bills-dead-letters"):
        filled.post("api/topics", {"name": name}, 201)
    path = "api/topics/bills-dead-letters/messages"
    filled.post(path, letter("bills", 4, "not JSON", "{}"), 201)
    order = "api/dead-letters/bills-dead-letters/redrive"
    for moved in (1, 0):
        assert filled.post(order, {"all": True})["moved"] == moved
    found = filled.get("api/topics/bills/messages", from_="beginning")["messages"]
    assert len(found) == 1
