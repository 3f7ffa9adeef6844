"""A running Spark pipeline in the browser: its state, its tables, and a record it cannot read."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from moldau.testing import Broker
from tests.console.consoles import RunningConsole
from tests.console.page.conftest import Opened
from tests.console.page.filling import fill
from tests.console.page.looks import photographed, settled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

BATCH_MS = 120_000
FILE = """
name = "shop"
trigger = "500 milliseconds"
[sources.orders]
topic = "orders"
schema = "id BIGINT NOT NULL, amount DOUBLE NOT NULL, city STRING"
[tables.large]
sql = "SELECT id, amount, upper(city) AS city FROM orders WHERE amount >= 10"
[sinks.large]
from = "large"
type = "delta"
path = "lake/large"
[sinks.all]
from = "orders"
type = "iceberg"
table = "shop.orders"
warehouse = "lake"
"""


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")
    from moldau.spark import session
    from tests.spark.conftest import JAVA_OPTIONS

    spark = session(
        "test",
        master="local[2]",
        config={
            "spark.sql.shuffle.partitions": "1",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            "spark.sql.warehouse.dir": tempfile.gettempdir(),
        },
    )
    yield spark
    spark.stop()


@pytest.fixture
def running(own_broker: Broker, spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A pipeline that runs until the test ends; its folder."""
    from moldau.spark.pipeline import Pipeline

    own_broker.create_topic("orders")
    path = tmp_path / "shop.toml"
    path.write_text(FILE, "utf-8")
    pipeline = Pipeline.load(path, bootstrap=own_broker.bootstrap)
    stop = threading.Event()
    thread = threading.Thread(
        target=pipeline.supervise, kwargs={"spark": spark, "stop": stop}, daemon=True
    )
    thread.start()
    yield tmp_path
    stop.set()
    thread.join(60)
    assert not thread.is_alive()


def order(id: int, amount: float) -> tuple[str, str]:
    return f"customer-{id}", f'{{"id": {id}, "amount": {amount}, "city": "Praha"}}'


def test_a_pipeline_is_watched_and_the_record_that_it_could_not_read_is_put_right(
    opened: Opened, own_broker: Broker, own_console: RunningConsole, running: Path
) -> None:
    from playwright.sync_api import expect

    broken = ("customer-3", '{"id": 3, "amount": 30.0')
    fill(own_broker, "orders", [order(1, 5.0), order(2, 20.0), broken])

    page = opened(own_console.url)
    page.get_by_role("link", name="Pipelines").click()
    page.get_by_role("link", name="shop").click()
    row = page.get_by_role("row", name=re.compile("^large delta"))
    expect(row).to_contain_text("running", timeout=BATCH_MS)
    letters = row.get_by_role("link", name="1", exact=True)
    expect(letters).to_be_visible(timeout=BATCH_MS)
    expect(page.get_by_role("row", name=re.compile("^all iceberg"))).to_contain_text("shop.orders")
    expect(page.get_by_role("main")).to_contain_text("upper(city)")
    photographed(page, "running-pipeline")

    count_of_rows = page.locator(".stat").filter(has_text="Rows")
    for table, rows in (("large", 1), ("all", 2)):
        page.get_by_role("link", name=re.compile(f"^{table} ")).click()
        expect(count_of_rows).to_have_text(re.compile(rf"^Rows\s*{rows}\s*$"), timeout=BATCH_MS)
        expect(page.get_by_role("region", name="Rows")).to_contain_text(re.compile("praha", re.I))
        page.get_by_role("link", name="shop").click()

    letters.click()
    page.get_by_role("listbox", name="Dead letters").get_by_role("option").first.click()
    pane = page.get_by_role("complementary", name="Message 0 of partition 0")
    expect(pane).to_contain_text("orders, partition 0, offset 2")
    pane.get_by_role("button", name="Edit").click()
    pane.get_by_label("Value to send back").fill(order(3, 30.0)[1])
    pane.get_by_role("button", name="Redrive").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    expect(pane).to_contain_text("It was sent back already")
    photographed(page, "running-pipeline-letters")

    # The pipeline reads the record again, and both tables get it, each once.
    for place, rows in (("large", 2), ("shop.orders", 3)):
        page.goto(f"{own_console.url}/#/lake?path={quote(str(running / 'lake' / place))}")
        settled(page)
        expect(count_of_rows).to_have_text(re.compile(rf"^Rows\s*{rows}\s*$"), timeout=BATCH_MS)
        expect(page.get_by_role("cell", name="30", exact=True)).to_have_count(1)
    page.goto(f"{own_console.url}/#/security/audit")
    expect(page.get_by_role("row", name="redrove letters")).to_be_visible()
