"""Searches through the console's API, in real worker processes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import Any

import confluent_kafka
import pytest

from moldau.console.search import process
from moldau.console.settings import ConsoleSettings
from moldau.console.values.masks import Mask
from moldau.schemas.client import RegistryClient
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.console.consoles import RunningConsole

pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("duckdb")

COUNT = 3000


@pytest.fixture(scope="module")
def topic(shared_broker: Broker) -> str:
    shared_broker.create_topic("searched", 3)
    producer = confluent_kafka.Producer({"bootstrap.servers": shared_broker.bootstrap})
    for number in range(COUNT):
        status = "failed" if number % 1000 == 7 else "fine"
        producer.produce(
            "searched",
            json.dumps({"number": number, "status": status}),
            f"k{number}",
            number % 3,
            timestamp=1_700_000_000_000 + number,
            headers=[("n", str(number).encode())],
        )
    producer.flush(30)
    return "searched"


def outcome(console: RunningConsole, body: dict[str, Any]) -> tuple[str, list[Any], Any]:
    """Run a search; return its id, what it found and its last event."""
    id = console.post("api/searches", body, 201)["id"]
    found: list[Any] = []
    for name, data in console.events(f"api/searches/{id}/events"):
        if name == "found":
            found += data
        elif name in ("done", "failed"):
            return id, found, (name, data)
    raise AssertionError("the stream ended without a word")


def test_a_search_finds_by_field_header_and_time_and_is_exported(
    console: RunningConsole, topic: str
) -> None:
    text = "value.status = 'failed' AND headers.n <> '7' AND timestamp >= '2023-11-14'"
    id, found, end = outcome(console, {"topic": topic, "filter": text})
    assert end == ("done", {"reason": "end"})
    numbers = sorted(each["value"]["json"]["number"] for each in found)
    assert numbers == [1007, 2007]
    exported = console.get(f"api/searches/{id}/export", format="json")
    assert sorted(each["value"]["json"]["number"] for each in exported) == numbers
    answer = console.http.get(f"api/searches/{id}/export", params={"format": "parquet"})
    table = pq.read_table(io.BytesIO(answer.content))
    assert sorted(json.loads(each)["number"] for each in table["value"].to_pylist()) == numbers


@pytest.mark.slow
def test_a_search_is_bounded_by_its_limit_its_range_and_its_partitions(
    console: RunningConsole, topic: str
) -> None:
    _, found, end = outcome(console, {"topic": topic, "filter": "value.number >= 0", "limit": 5})
    assert (len(found), end) == (5, ("done", {"reason": "limit"}))
    body = {"topic": topic, "from": "offset:990", "until": "offset:995", "partitions": [1]}
    _, found, end = outcome(console, body)
    assert [each["offset"] for each in found] == [990, 991, 992, 993, 994]


@pytest.mark.parametrize("text", ["nothing = 1"])
def test_a_bad_filter_fails_with_the_reason(console: RunningConsole, topic: str, text: str) -> None:
    _, _, (name, data) = outcome(console, {"topic": topic, "filter": text})
    assert name == "failed"
    assert data["code"] == "bad_filter"
    assert data["message"]


@pytest.mark.slow
def test_a_page_of_messages_can_be_filtered(console: RunningConsole, topic: str) -> None:
    path = f"api/topics/{topic}/messages"
    numbers: list[int] = []
    start = "beginning"
    # On a busy machine a page ends before it has as many as it may.
    while start:
        page = console.get(path, from_=start, filter="value.status = 'failed'", limit=2)
        assert len(page["messages"]) <= 2
        numbers += [each["value"]["json"]["number"] for each in page["messages"]]
        start = page["next"]
    assert sorted(numbers) == [7, 1007, 2007]
    last = console.get(path, from_="end:-1", filter="value.status = 'failed'")
    assert [each["value"]["json"]["number"] for each in last["messages"]] == [2007]
    assert console.get(path, 422, filter="value.x >")["error"]["code"] == "bad_filter"


@pytest.mark.slow
def test_a_process_is_made_ready_for_a_search_that_is_about_to_begin(
    console: RunningConsole, topic: str
) -> None:
    searches = console.console.searches
    console.post("api/searches/ready", {"topic": "nowhere"}, 404)
    console.post("api/searches/ready", {"topic": topic})
    ready = searches.spare.process
    assert ready is not None
    assert ready.returncode is None
    console.post("api/searches/ready", {"topic": topic})
    assert searches.spare.process is ready
    console.post("api/searches", {"topic": topic, "filter": "value.n = 1"}, 201)
    until(lambda: searches.spare.process is not ready, "the search takes it")


def test_a_process_that_waits_has_made_its_kernels_ready() -> None:
    """The first records of a search would wait for them otherwise, for seconds if they are new."""
    script = """if True:
        from moldau.arrow import kernels
        from moldau.console.search import worker
        used = kernels.scan_batches, kernels.decode_batches
        assert not any(each.signatures for each in used)
        worker.warm_up()
        assert all(each.signatures for each in used)
    """
    subprocess.run([sys.executable, "-c", script], timeout=120, check=True)


def test_a_tail_can_be_filtered(console: RunningConsole, shared_broker: Broker) -> None:
    shared_broker.create_topic("live", 1)
    events = console.events("api/topics/live/tail", filter="value.n > 1")
    assert next(events) == ("messages", [])
    for number in (1, 2):
        body = {"value": {"n": number}, "value_encoding": "json"}
        console.post("api/topics/live/messages", body, 201)
    # On a busy machine, the stream says first that it is alive.
    found = next(data for name, data in events if name == "messages")
    assert [each["value"]["json"]["n"] for each in found] == [2]
    events.close()


@pytest.mark.slow
def test_values_of_registered_schemas_are_filtered_by_their_fields(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("typed", 1)
    schema = {"type": "record", "name": "T", "fields": [{"name": "n", "type": "long"}]}
    registered = RegistryClient(shared_broker.http_url).register("typed-value", schema)
    for number in (1, 2, 3):
        body = {"value": {"n": number}, "value_encoding": "schema", "schema_id": registered.id}
        console.post("api/topics/typed/messages", body, 201)
    _, found, _ = outcome(console, {"topic": "typed", "filter": "value.n >= 2"})
    assert [each["value"]["json"]["n"] for each in found] == [2, 3]


@pytest.mark.slow
def test_values_that_no_schema_reads_are_counted(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("untyped", 1)
    body = {"value": "0000ffffff02", "value_encoding": "hex"}
    console.post("api/topics/untyped/messages", body, 201)
    id = console.post("api/searches", {"topic": "untyped", "filter": "value.n >= 2"}, 201)["id"]
    events = list(console.events(f"api/searches/{id}/events"))
    last = [data for name, data in events if name == "progress"][-1]
    assert (last["scanned"], last["found"], last["unreadable"]) == (1, 0, 1)


@pytest.mark.slow
def test_a_masked_field_cannot_be_found_by(shared_broker: Broker, topic: str) -> None:
    masks = (Mask.parse("searched:status"),)
    with RunningConsole(ConsoleSettings(shared_broker.bootstrap, masks=masks)) as console:
        _, found, end = outcome(console, {"topic": topic, "filter": "value.status = 'failed'"})
        assert (found, end) == ([], ("done", {"reason": "end"}))
        id, found, _ = outcome(console, {"topic": topic, "filter": "value.number = 7"})
        assert found[0]["value"]["json"] == {"number": 7, "status": "***"}
        assert console.http.get(f"api/searches/{id}/export?format=parquet").status_code == 403


@pytest.mark.slow
def test_a_search_can_be_cancelled_and_is_nobody_elses(console: RunningConsole, topic: str) -> None:
    id = console.post("api/searches", {"topic": topic, "filter": "value.number < 0"}, 201)["id"]
    console.send("DELETE", f"api/searches/{id}")
    *_, (name, data) = console.events(f"api/searches/{id}/events")
    assert name == "done"
    assert data["reason"] in ("cancelled", "end")
    assert console.send("DELETE", "api/searches/other", status=404)


def test_without_the_extra_a_filter_is_refused_with_its_name(
    console: RunningConsole, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_NEEDED", ("no_such_module",))
    refused = console.post("api/searches", {"topic": topic, "filter": "true"}, 422)["error"]
    assert "moldau[console]" in refused["hint"]
    console.get(f"api/topics/{topic}/messages", 422, filter="true")
