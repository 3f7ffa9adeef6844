"""The registry of a cluster whose brokers die: no id is given twice, none is lost."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from moldau.schemas.header import pack_header
from moldau.testing import Cluster, Ensemble
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.broker.api.transactions.producing import TV1, TV2
from tests.broker.api.transactions.producing import Producer as Transactional
from tests.broker.wire_client import Client
from tests.certificates import client_context, tls_settings
from tests.http.registry.test_client import record
from tests.http.test_access import LOGINS
from tests.spark.topics import read_by_librdkafka

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

HTTP = re.compile(r"HTTP on (https?://\S+)")
WITHIN_S = 60.0


def url(cluster: Cluster, broker: int) -> str:
    """Where a broker serves HTTP in its present life."""
    found: str = HTTP.findall(cluster.log(broker).read_text("utf-8"))[-1]
    return found


class Writer(threading.Thread):
    """Registers one schema after the other at one broker after the other, until each is there."""

    def __init__(self, name: str, urls: list[str], count: int) -> None:
        super().__init__(daemon=True)
        self.subject = name
        self.urls = urls
        self.count = count
        self.ids: dict[str, int] = {}
        self.refusals = 0

    def run(self) -> None:
        with httpx.Client(timeout=60) as http:
            for number in range(self.count):
                text = json.dumps(record(**{f"{self.subject}_{number}": ("int", 0)}))
                self.ids[text] = self.register(http, number, text)

    def register(self, http: httpx.Client, number: int, text: str) -> int:
        deadline = time.monotonic() + WITHIN_S
        turn = number
        while time.monotonic() < deadline:
            turn += 1
            try:
                answer = http.post(
                    f"{self.urls[turn % len(self.urls)]}/subjects/{self.subject}/versions",
                    json={"schema": text},
                )
            except httpx.TransportError:
                self.refusals += 1
                continue
            if answer.status_code == 200:
                return int(answer.json()["id"])
            assert answer.status_code >= 500, answer.text
            self.refusals += 1
        raise TimeoutError(text)


def test_ids_while_leaders_die(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble, {"http.listen": "127.0.0.1:0"}) as cluster:
        urls = [url(cluster, broker) for broker in cluster.brokers]
        with SchemaRegistryClient({"url": urls[0]}) as client:
            known = client.register_schema("known", Schema(json.dumps(record(id="int")), "AVRO"))
        cluster.wait_until_in_sync("_schemas")
        writers = [Writer(f"w{number}", urls, 40) for number in range(3)]
        for writer in writers:
            writer.start()
        for _ in range(2):
            leader = cluster.leader_of("_schemas")
            cluster.wait_until(lambda: len(writers[0].ids) >= 3, "some schemas")
            cluster.kill(leader)
            # Readers go on, wherever they ask.
            for broker in cluster.running:
                answer = httpx.get(f"{url(cluster, broker)}/schemas/ids/{known}", timeout=60)
                assert answer.status_code == 200
            assert cluster.leader_of("_schemas") != leader
            cluster.start(leader)
            urls[leader] = url(cluster, leader)
            cluster.wait_until_in_sync("_schemas")
        for writer in writers:
            writer.join(WITHIN_S)
            assert len(writer.ids) == writer.count
        given = [schema_id for writer in writers for schema_id in writer.ids.values()]
        assert len(given) == len(set(given)), "an id was given twice"
        for broker in cluster.brokers:
            with httpx.Client(base_url=url(cluster, broker), timeout=60) as http:
                for writer in writers:
                    check(http, writer)


def check(http: httpx.Client, writer: Writer) -> None:
    """Everything that was answered is there, under its id, in one version."""

    def versions() -> list[int]:
        found: list[int] = http.get(f"/subjects/{writer.subject}/versions").json()
        return found

    # A follower learns with its next fetch that the last record is committed.
    until(lambda: len(versions()) >= writer.count, "all versions")
    assert versions() == list(range(1, writer.count + 1))
    for text, schema_id in writer.ids.items():
        found: Any = http.get(f"/schemas/ids/{schema_id}").json()
        assert json.loads(found["schema"]) == json.loads(text)


def test_a_frozen_leader_gives_no_id_when_it_wakes(ensemble: Ensemble) -> None:
    """A deposed leader that still answers: what it took before it knew is refused or was kept."""
    with Cluster(3, ensemble, {"http.listen": "127.0.0.1:0"}) as cluster:
        urls = {broker: url(cluster, broker) for broker in cluster.brokers}
        body = {"schema": json.dumps(record(id="int"))}
        first = httpx.post(f"{urls[0]}/subjects/s/versions", json=body, timeout=60).json()["id"]
        cluster.wait_until_in_sync("_schemas")
        leader = cluster.leader_of("_schemas")
        cluster.freeze(leader)
        late: list[httpx.Response] = []
        asked = {"schema": json.dumps(record(id="int", late=("int", 0)))}

        def ask() -> None:
            late.append(httpx.post(f"{urls[leader]}/subjects/s/versions", json=asked, timeout=60))

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        other = cluster.leader_of("_schemas")
        assert other != leader
        body = {"schema": json.dumps(record(id="int", other=("int", 0)))}
        second = httpx.post(f"{urls[other]}/subjects/s/versions", json=body, timeout=60).json()
        assert second["id"] == first + 1
        cluster.thaw(leader)
        thread.join(60)
        (answer,) = late
        if answer.status_code == 200:
            assert answer.json()["id"] == first + 2
        else:
            assert answer.status_code >= 500, answer.text
        for broker in cluster.brokers:
            found = httpx.get(f"{urls[broker]}/schemas/ids/{second['id']}", timeout=60).json()
            assert json.loads(found["schema"]) == json.loads(body["schema"])


def test_the_same_schema_from_all_sides_at_once_has_one_id(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble, {"http.listen": "127.0.0.1:0"}) as cluster:
        urls = [url(cluster, broker) for broker in cluster.brokers]
        body = {"schema": json.dumps(record(id="int"))}
        together = threading.Barrier(9)
        found: list[tuple[int, int]] = []

        def ask(turn: int) -> None:
            together.wait(60)
            target = f"{urls[turn % 3]}/subjects/s{turn % 2}/versions"
            answer = httpx.post(target, json=body, timeout=60).json()
            found.append((answer["id"], answer["version"]))

        threads = [threading.Thread(target=ask, args=(turn,), daemon=True) for turn in range(9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert found == [(1, 1)] * 9


def test_a_broker_without_a_replica_serves_too(ensemble: Ensemble) -> None:
    with Cluster(2, ensemble, {"http.listen": "127.0.0.1:0"}) as cluster:
        cluster.create_topic("_schemas", 1, 1, cleanup_policy="compact")
        leader = cluster.leader_of("_schemas")
        (other,) = set(cluster.brokers) - {leader}
        with SchemaRegistryClient({"url": url(cluster, other)}) as client:
            known = client.register_schema("s", Schema(json.dumps(record(id="int")), "AVRO"))
            assert client.get_versions("s") == [1]
            client.set_compatibility("s", "FULL")
            assert client.get_compatibility("s") == "FULL"
        with SchemaRegistryClient({"url": url(cluster, leader)}) as client:
            newer = Schema(json.dumps(record(id="int", more=("int", 0))), "AVRO")
            newest = client.register_schema("s", newer)
        # What it has not heard of yet, it asks for.
        answer = httpx.get(f"{url(cluster, other)}/schemas/ids/{newest}", timeout=60)
        assert answer.status_code == 200
        cluster.kill(leader)
        with httpx.Client(base_url=url(cluster, other), timeout=60) as http:
            assert http.get(f"/schemas/ids/{known}").status_code == 200
            assert http.get("/subjects/s/versions").json() == [1, 2]
            refused = http.post("/subjects/s/versions", json={"schema": '"string"'})
            assert refused.status_code == 500
            assert refused.json()["error_code"] in (50003, 50004)


def test_records_are_checked_and_set_aside_across_brokers(ensemble: Ensemble) -> None:
    """The schemas, the topic and its quarantine are led by different brokers."""
    pytest.importorskip("numba", reason="the check is compiled by numba, which is not installed")
    with Cluster(2, ensemble, {"http.listen": "127.0.0.1:0"}) as cluster:
        cluster.create_topic("_schemas", 1, 1, cleanup_policy="compact")
        schemas = cluster.leader_of("_schemas")
        aside = led_by(cluster, "aside", {schemas})
        topic = led_by(
            cluster, "t", {1 - schemas}, moldau_value_schema_validation=True,
            moldau_schema_validation_quarantine=aside,
        )  # fmt: skip
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 100})
        failed: list[Any] = []
        with SchemaRegistryClient({"url": url(cluster, schemas)}) as client:
            for number in range(5):
                # Known to the broker that checks only after it was registered at the other.
                text = json.dumps(record(**{f"f{number}": ("int", 0)}))
                known = client.register_schema(f"{topic}-value", Schema(text, "AVRO"))
                producer.produce(
                    topic, pack_header(known) + b"\0", on_delivery=lambda e, _: failed.append(e)
                )
                assert producer.flush(60) == 0
        assert failed == [None] * 5
        for value in (pack_header(known) + b"\0", b"bad"):
            producer.produce(topic, value, on_delivery=lambda e, _: failed.append(e))
        assert producer.flush(60) == 0
        assert failed == [None] * 7
        (letter,) = read_by_librdkafka(cluster, aside)
        assert letter["value"] == b"bad"


@pytest.mark.parametrize("dialect", [TV1, TV2])
def test_a_transaction_covers_what_another_broker_sets_aside(
    ensemble: Ensemble, dialect: int
) -> None:
    """The topic and the coordinator are on one broker, the quarantine is on the other."""
    pytest.importorskip("numba", reason="the check is compiled by numba, which is not installed")
    with Cluster(2, ensemble, {"http.listen": "127.0.0.1:0"}) as cluster:
        cluster.create_topic("_schemas", 1, 1, cleanup_policy="compact")
        schemas = cluster.leader_of("_schemas")
        aside = led_by(cluster, "aside", {1 - schemas})
        topic = led_by(
            cluster, "t", {schemas}, moldau_value_schema_validation=True,
            moldau_schema_validation_quarantine=aside,
        )  # fmt: skip
        with SchemaRegistryClient({"url": url(cluster, schemas)}) as client:
            known = client.register_schema(f"{topic}-value", Schema('"string"', "AVRO"))
        fine = pack_header(known) + b"\x02a"
        host, port = cluster.address(schemas).rsplit(":", 1)
        producer = coordinated_by((host, int(port)), schemas, dialect).init()

        def read(name: str) -> list[bytes]:
            return [row["value"] for row in read_by_librdkafka(cluster, name)]

        producer.produce(topic, fine, b"bad 1")
        assert (read(topic), read(aside)) == ([], [])
        producer.end(commits=False)
        producer.until("CompleteAbort")
        producer.produce(topic, fine, b"bad 2")
        producer.produce(topic, b"bad 3")
        producer.end(commits=True)
        producer.until("CompleteCommit")
        assert (read(topic), read(aside)) == ([fine], [b"bad 2", b"bad 3"])
        producer.client.close()


def coordinated_by(address: tuple[str, int], broker: int, dialect: int) -> Transactional:
    """A producer whose transactions this broker coordinates."""
    with Client(address) as client:
        for number in range(100):
            name = f"txn-{number}"

            def coordinator(name: str = name) -> Any:
                answer = client.ask(Api.FIND_COORDINATOR, 1, key=name, key_type=1)
                return None if answer.error_code else answer

            if until(coordinator, "a coordinator").node_id == broker:
                return Transactional(address, dialect, name)
    raise AssertionError(f"none of a hundred ids is coordinated by broker {broker}")


def test_writes_are_passed_on_over_https_with_the_clients_login(
    ensemble: Ensemble, tmp_path: Path
) -> None:
    tls = tls_settings(tmp_path)
    del tls["listeners"]
    secure = LOGINS | tls | {"http.security.protocol": "SASL_SSL"}
    with Cluster(2, ensemble, secure) as cluster:
        cluster.create_topic("_schemas", 1, 1, cleanup_policy="compact")
        other = 1 - cluster.leader_of("_schemas")
        target = f"{url(cluster, other)}/subjects/s/versions"
        with httpx.Client(verify=client_context(), timeout=60) as http:
            assert http.post(target, json={"schema": '"int"'}).status_code == 401
            http.auth = ("alice", "wonder: land")
            assert http.post(target, json={"schema": '"int"'}).json()["id"] == 1
            assert http.get(target).json() == [1]


def led_by(cluster: Cluster, name: str, brokers: set[int], **configs: Any) -> str:
    """A topic that one of these brokers leads."""
    for number in range(20):
        cluster.create_topic(f"{name}{number}", 1, 1, **configs)
        if cluster.leader_of(f"{name}{number}") in brokers:
            return f"{name}{number}"
    raise AssertionError(f"none of twenty topics is led by {brokers}")
