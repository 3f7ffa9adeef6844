"""Pipelines and their lake tables through the console's API."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from moldau.console.pool import ClusterPool
from moldau.console.records import read_all
from moldau.console.sampling import pipelines
from moldau.console.settings import ConsoleSettings
from moldau.console.values.masks import Mask
from moldau.peer.cluster import Cluster
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.console.consoles import RunningConsole


def status(name: str, **more: Any) -> str:
    content = {
        "kind": "status", "version": 1, "name": name, "run": "1", "state": "running",
        "at_ms": int(time.time() * 1000), "every_ms": 10_000, "sql": {"t": "SELECT 1"},
        "last_error": None, "sinks": [],
    }  # fmt: skip
    return json.dumps(content | more)


@pytest.fixture(scope="module")
def statuses(shared_broker: Broker, console: RunningConsole) -> str:
    shared_broker.create_topic("__moldau_pipelines", 1, cleanup_policy="compact")
    return "api/topics/__moldau_pipelines/messages"


def test_pipelines_are_shown_as_they_last_said_and_the_silent_as_lost(
    console: RunningConsole, statuses: str
) -> None:
    sink = {"name": "raw", "type": "topic", "state": "running", "rows_per_s": 5.5, "lag": 3}
    for key, value in (
        ("old", status("old")),
        ("old", status("old", at_ms=1_700_000_000_000)),
        ("fine", status("fine", sinks=[sink])),
        ("fine\0request", '{"kind": "request", "name": "fine"}'),
        ("gone", status("gone")),
        ("gone", None),
        ("broken", "not json"),
    ):
        console.post(statuses, {"key": key, "value": value}, 201)
    found = {each["name"]: each for each in console.get("api/pipelines")["pipelines"]}
    assert (found["fine"]["state"], found["old"]["state"]) == ("running", "lost")
    assert "gone" not in found
    assert found["fine"]["sinks"][0]["rows_per_s"] == 5.5
    assert found["fine"]["sql"] == {"t": "SELECT 1"}


def test_statuses_are_read_on_from_where_reading_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    # Consoles of other tests read meanwhile, too.
    own: list[Cluster] = []

    def noted(cluster: Cluster, topic: str, partition: int, start: int) -> Any:
        if cluster in own:
            begun.append(start)
        return read_all(cluster, topic, partition, start)

    monkeypatch.setattr(pipelines, "read_all", noted)
    with Broker() as broker:
        admin = AdminClient({**broker.librdkafka_settings})
        pool = ClusterPool(ConsoleSettings(broker.bootstrap))
        statuses = pipelines.PipelineStatuses()

        def told(*said: tuple[str, str | None]) -> list[str]:
            producer = Producer(broker.librdkafka_settings)
            for key, value in said:
                producer.produce(pipelines.TOPIC, value, key)
            assert producer.flush(30) == 0
            begun.clear()
            with pool.borrowed(None) as cluster:
                own[:] = [cluster]
                return [each.name for each in statuses.read(cluster)]

        assert told() == []
        broker.create_topic(pipelines.TOPIC, 1, cleanup_policy="compact")
        assert told(("a", status("a")), ("b", status("b"))) == ["a", "b"]
        assert begun == [0]
        assert told(("c", status("c")), ("a", None)) == ["b", "c"]
        assert begun == [2]
        assert told() == ["b", "c"]
        assert begun == [4]
        # What another topic of that name says has nothing to do with it.
        admin.delete_topics([pipelines.TOPIC])[pipelines.TOPIC].result(30)
        assert told() == []
        broker.create_topic(pipelines.TOPIC, 1, cleanup_policy="compact")
        assert told(("d", status("d"))) == ["d"]
        assert begun == [0]
        pool.close()


def test_the_overview_says_which_pipelines_need_somebody(
    console: RunningConsole, statuses: str
) -> None:
    sink = {"name": "raw", "type": "topic", "state": "running", "dead_letters": 3}
    told_of: dict[str, dict[str, Any]] = {
        "stopped-by-an-error": {"state": "failed", "last_error": {"message": "no column n"}},
        "silent": {"at_ms": 1_700_000_000_000},
        "again": {"state": "restarting"},
        "with-letters": {"sinks": [sink]},
        "well": {},
    }
    for name, more in told_of.items():
        console.post(statuses, {"key": name, "value": status(name, **more)}, 201)

    def told() -> dict[str, tuple[str, str]]:
        return {
            each["where"]["name"]: (each["severity"], each["what"])
            for each in console.get("api/overview")["problems"]
            if each["where"]["kind"] == "pipeline"
        }

    until(lambda: "with-letters" in told(), "problems of pipelines", 30)
    found = told()
    assert found["stopped-by-an-error"] == (
        "error", "pipeline stopped-by-an-error has failed: no column n",
    )  # fmt: skip
    assert found["silent"][0] == "error"
    assert found["again"][0] == "warning"
    assert found["with-letters"][0] == "info"
    assert "3 records" in found["with-letters"][1]
    assert "well" not in found


def test_a_lake_table_is_shown_only_if_a_pipeline_names_it(
    console: RunningConsole, statuses: str, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    pa = pytest.importorskip("pyarrow")
    named, other = str(tmp_path / "named"), str(tmp_path / "other")
    for path in (named, other):
        deltalake.write_deltalake(
            path, pa.table({"n": [1, 2, 3], "s": ["a", "b", "c"]}), partition_by=["s"]
        )
    deltalake.write_deltalake(named, pa.table({"n": [4], "s": ["d"]}), mode="append")
    sink = {"name": "lake", "type": "delta", "state": "running", "path": named, "target": named}
    console.post(statuses, {"key": "lake", "value": status("lake", sinks=[sink])}, 201)
    tables = console.get("api/lake", pipeline="lake")["tables"]
    assert tables == [{"pipeline": "lake", "sink": "lake", "type": "delta", "path": named}]
    found = console.get("api/lake/table", path_=named)
    assert (found["rows"], found["files"], found["version"]) == (4, 4, 1)
    assert [each["version"] for each in found["versions"]] == [1, 0]
    assert found["schema"][0] == {"name": "n", "type": "long"}
    assert found["preview"]["columns"] == ["n", "s"]
    assert sorted(found["preview"]["rows"]) == [[1, "a"], [2, "b"], [3, "c"], [4, "d"]]
    console.get("api/lake/table", 404, path_=other)
    console.get("api/lake/table", 404, path_="/etc")


def test_an_iceberg_table_of_a_local_warehouse_is_shown(
    console: RunningConsole, statuses: str, tmp_path: Path
) -> None:
    pytest.importorskip("pyiceberg")
    pa = pytest.importorskip("pyarrow")
    from pyiceberg.types import TimestampType

    from tests.spark.lake.iceberg.tables import catalog_of

    warehouse, name = tmp_path / "lake", "shop.orders"
    warehouse.mkdir()
    named = f"{warehouse}/{name}"

    def shown(status_code: int = 200) -> Any:
        return console.get("api/lake/table", status_code, path_=named)

    sink = {"name": "orders", "type": "iceberg", "target": name, "warehouse": str(warehouse)}
    console.post(statuses, {"key": "ice", "value": status("ice", sinks=[sink])}, 201)
    assert console.get("api/lake", pipeline="ice")["tables"] == [
        {"pipeline": "ice", "sink": "orders", "type": "iceberg", "path": named}
    ]
    shown(404)
    catalog = catalog_of(warehouse)
    catalog.create_namespace("shop")
    shown(404)
    table = catalog.create_table(name, pa.schema([("n", pa.int64()), ("s", pa.string())]))
    assert shown()["preview"] == {
        "columns": ["n", "s"], "rows": [], "is_hidden": False, "note": "",
    }  # fmt: skip
    table.append(pa.table({"n": [1, 2], "s": ["a", "b"]}))
    with table.update_schema() as change:
        change.rename_column("s", "t")
        change.add_column("when", TimestampType())
    now = datetime(2026, 1, 31, 12)
    table.append(pa.table({"n": [3], "t": ["c"], "when": pa.array([now], pa.timestamp("us"))}))
    found = shown()
    assert (found["rows"], found["files"], found["version"]) == (3, 2, 2)
    assert found["bytes"] > 0
    assert [(each["version"], each["operation"]) for each in found["versions"]] == [
        (2, "append"), (1, "append"),
    ]  # fmt: skip
    assert found["schema"][2] == {"name": "when", "type": "timestamp"}
    assert found["preview"]["columns"] == ["n", "t", "when"]
    assert sorted(found["preview"]["rows"]) == [
        [1, "a", None], [2, "b", None], [3, "c", "2026-01-31T12:00:00"],
    ]  # fmt: skip

    # What is not in the warehouse is not read, whatever the catalog says.
    elsewhere = tmp_path / "elsewhere.metadata.json"
    elsewhere.write_bytes(Path(urlparse(table.metadata_location).path).read_bytes())
    with closing(sqlite3.connect(warehouse / "catalog.db")) as file, file:
        file.execute("UPDATE iceberg_tables SET metadata_location = ?", (elsewhere.as_uri(),))
    assert shown(404)["error"]["code"] == "not_here"


def test_a_table_made_from_a_masked_topic_is_not_previewed(
    shared_broker: Broker, console: RunningConsole, statuses: str, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    pa = pytest.importorskip("pyarrow")
    path = str(tmp_path / "cards")
    deltalake.write_deltalake(path, pa.table({"renamed": ["4111"]}))
    sink = {"name": "lake", "type": "delta", "state": "running", "path": path, "target": path}

    def preview(**source: Any) -> dict[str, Any]:
        told = status("cards", sinks=[sink], sources=[{"name": "in"} | source])
        console.post(statuses, {"key": "cards", "value": told}, 201)
        found: dict[str, Any] = masked.get("api/lake/table", path_=path)["preview"]
        return found

    masks = (Mask.parse("customers:card.number"),)
    with RunningConsole(ConsoleSettings(shared_broker.bootstrap, masks=masks)) as masked:
        hidden = {"columns": ["renamed"], "rows": [], "is_hidden": True, "note": ""}
        assert preview(topics=["others", "customers"]) == hidden
        assert preview(topics=["others"], pattern="cust.*") == hidden
        assert preview() == hidden
        assert preview(topics=["others"])["rows"] == [["4111"]]
