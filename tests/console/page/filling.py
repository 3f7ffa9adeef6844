"""Topics with messages in them, groups that have read some, and a cluster with all of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.client.queue.queue import Queue
from moldau.testing import Broker
from tests.console.api.test_dead_letters import letter
from tests.console.api.test_pipelines import status
from tests.console.consoles import RunningConsole

Written = tuple[str | None, str | bytes | None]

HOUR_MS = 3_600_000
CITIES = ("Praha", "Plzeň", "Písek", "Tábor", "Wien", "Linz", "Graz", "Passau")


def fill(broker: Broker, topic: str, messages: Iterable[Written], age_ms: int = 0) -> None:
    """Write messages, which look as old as that."""
    producer = Producer(broker.librdkafka_settings)
    for key, value in messages:
        now = int(time.time() * 1000)
        producer.produce(topic, value, key=key, timestamp=now - age_ms)
        producer.poll(0)
    assert producer.flush(30) == 0


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    """Have a group go on at an offset of partition 0."""
    consumer = Consumer({**broker.librdkafka_settings, "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


@contextmanager
def everything(broker: Broker, console: RunningConsole, folder: Path) -> Iterator[None]:
    """Fill a locked cluster so that every page has something to show. Until it is left, a group
    has a member and a transaction is open."""
    _topics(broker, console)
    _schemas(console)
    _security(console)
    _pipelines(broker, console, folder / "orders")
    with ExitStack() as stack:
        stack.enter_context(_groups(broker))
        stack.enter_context(_transactions(broker))
        yield


def _orders(first: int, count: int) -> list[Written]:
    return [
        (
            f"customer-{number % 17}",
            json.dumps(
                {
                    "id": number,
                    "amount": round(9.5 + number * 3.25, 2),
                    "city": CITIES[number % len(CITIES)],
                    "items": [{"sku": f"A-{number % 5}", "count": 1 + number % 3}],
                }
            ),
        )
        for number in range(first, first + count)
    ]


def _topics(broker: Broker, console: RunningConsole) -> None:
    for name, partitions in (("orders.eu", 3), ("orders.us", 3), ("payments", 1), ("jobs", 1)):
        console.post("api/topics", {"name": name, "partitions": partitions}, 201)
    console.send("PATCH", "api/topics/orders.eu/configs", {"set": {"retention.ms": "604800000"}})
    fill(broker, "orders.eu", _orders(0, 400), age_ms=HOUR_MS)
    fill(broker, "orders.us", _orders(400, 150), age_ms=HOUR_MS)
    fill(broker, "payments", _orders(550, 40), age_ms=60_000)
    fill(broker, "clicks.web", [(f"u{number}", f"/page/{number}") for number in range(90)])
    fill(broker, "clicks.mobile", [(f"u{number}", f"/view/{number}") for number in range(30)])
    fill(broker, "jobs", [(None, f"resize image {number}") for number in range(25)])
    console.post("api/topics", {"name": "payments-dead-letters"}, 201)
    path = "api/topics/payments-dead-letters/messages"
    for offset, reason, value in (
        (4, "not JSON: unexpected end of data", '{"id": 554, "amount": 12'),
        (9, "column `amount` is missing", '{"id": 559}'),
        (21, "not JSON: unexpected end of data", '{"id": 571, "amo'),
    ):
        console.post(path, letter("payments", offset, reason, value), 201)


def _schemas(console: RunningConsole) -> None:
    fields: list[dict[str, Any]] = [{"name": "id", "type": "long"}]
    for more in ({"name": "amount", "type": "double"}, {"name": "city", "type": "string"}):
        fields.append(more | {"default": 0.0 if more["type"] == "double" else ""})
        schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
        console.post("api/schemas/orders.eu-value/versions", {"schema": schema}, 201)
    person = json.dumps({"type": "object", "properties": {"name": {"type": "string"}}})
    console.post("api/schemas/people-value/versions", {"schema": person, "type": "JSON"}, 201)


def _security(console: RunningConsole) -> None:
    for name in ("ann", "ben"):
        console.post("api/security/users", {"name": name, "password": "a-long-one"}, 201)
    rule = {"operation": "Read", "resource": "Topic", "name": "orders.", "prefix": True}
    console.post("api/security/acls", rule | {"principal": "User:ann"}, 201)
    denied = {"principal": "User:ben", "permission": "Deny", "name": "orders.eu", "prefix": False}
    console.post("api/security/acls", rule | denied, 201)
    limits = {"producer_byte_rate": 1 << 20, "request_percentage": 25}
    console.send("PATCH", "api/security/quotas", {"entity": {"user": "ann"}, "limits": limits})
    others = {"entity": {"user": None}, "limits": {"consumer_byte_rate": 10 << 20}}
    console.send("PATCH", "api/security/quotas", others)


def _pipelines(broker: Broker, console: RunningConsole, lake: Path) -> None:
    """Two pipelines as they would say: one that runs, with its table, and one that has failed."""
    import pyarrow as pa
    from deltalake import write_deltalake

    rows = [json.loads(value or "") for _, value in _orders(0, 60)]
    for part in (rows[:40], rows[40:]):
        write_deltalake(str(lake), pa.Table.from_pylist(part), mode="append")
    broker.create_topic("__moldau_pipelines", 1, cleanup_policy="compact")
    sink = {
        "name": "orders", "type": "delta", "state": "running", "target": str(lake),
        "path": str(lake), "rows_per_s": 812.4, "batch_ms": 431.0, "lag": 0, "dead_letters": 3,
    }  # fmt: skip
    sources = [{"name": "in", "topics": ["payments"], "dead_letters": "payments-dead-letters"}]
    sql = {"by_city": "SELECT city, sum(amount) AS revenue\nFROM orders\nGROUP BY city"}
    shop = status("shop", sinks=[sink], sources=sources, sql=sql, every_ms=HOUR_MS)
    error = {
        "message": "column `price` does not exist: the nearest is `amount`", "part": "table report",
        "at_ms": int(time.time() * 1000) - 600_000,
        "record": {"topic": "orders.us", "partition": 0, "offset": 7},
    }  # fmt: skip
    failed = {"name": "report", "type": "topic", "target": "report", "state": "failed"}
    nightly = status("nightly", state="failed", last_error=error, sinks=[failed])
    for name, text in (("shop", shop), ("nightly", nightly)):
        console.post("api/topics/__moldau_pipelines/messages", {"key": name, "value": text}, 201)


@contextmanager
def _groups(broker: Broker) -> Iterator[None]:
    commit(broker, "billing", "orders.eu", 12)
    commit(broker, "shipping", "orders.us", 40)
    with Queue(
        "jobs", group="workers", start="earliest", ahead=5, settings=broker.client_settings
    ) as queue:
        for number, job in enumerate(queue):
            job.done()
            if number == 6:
                break
    reader = Consumer(
        {
            **broker.librdkafka_settings,
            "group.id": "dashboards",
            "client.id": "dashboard-1",
            "auto.offset.reset": "earliest",
        }
    )
    reader.subscribe(["clicks.web", "clicks.mobile"])
    try:
        assert len(reader.consume(60, 30)) == 60
        reader.commit(asynchronous=False)
        yield
    finally:
        reader.close()


@contextmanager
def _transactions(broker: Broker) -> Iterator[None]:
    for name in ("ledger-2", "ledger-1"):
        settings = {"transactional.id": name, "transaction.timeout.ms": 600_000}
        producer = Producer(broker.librdkafka_settings | settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("payments", '{"id": 600, "amount": 1}')
        assert producer.flush(30) == 0
        if name == "ledger-2":
            producer.commit_transaction(30)
    yield
    producer.abort_transaction(30)
