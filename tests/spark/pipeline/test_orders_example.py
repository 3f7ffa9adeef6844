"""The shop in examples/orders: late orders, broken ones, and revenue that is right in the end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from moldau.cli import main
from moldau.spark.pipeline import Pipeline, SinkProgress
from moldau.testing import Broker
from tests.spark.pipeline.files import table, values
from tests.spark.topics import Sent, produce, read_by_librdkafka

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parents[3] / "examples" / "orders"
START = datetime(2025, 3, 3, 9, tzinfo=UTC)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders")
        yield broker


def order(number: int, minute: int, price: object = 2.0) -> Sent:
    time = (START + timedelta(minutes=minute)).isoformat()
    fields = {"time": time, "id": f"o-{number}", "item": "tea", "quantity": 1, "price": price}
    return None, json.dumps(fields).encode(), []


def edit_of_readme() -> str:
    """The expression that the README shows."""
    found = re.search(r"--edit '(.*)'\n", (EXAMPLE / "README.md").read_text("utf-8"))
    assert found is not None
    return found[1]


def test_late_and_broken_orders_are_counted_once_in_the_end(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    file = EXAMPLE / "pipeline.toml"
    pipeline = Pipeline.load(file, bootstrap=broker.bootstrap, folder=tmp_path)

    def run() -> dict[str, SinkProgress]:
        return pipeline.run(once=True, spark=spark)

    def revenue() -> dict[int, float]:
        rows = table(tmp_path / "data/lake/revenue")
        return {row["start"].minute: row["revenue"] for row in rows}

    # The fourth is late, but not too late, and the second was sent twice.
    orders = [order(1, 0), order(2, 25), order(3, 5, "3.50 EUR"), order(4, 1), order(2, 25)]
    produce(broker, "orders", orders)
    assert run()["orders"].dead_letters == 1
    assert revenue() == {0: 4, 20: 4}
    assert len(table(tmp_path / "data/lake/orders")) == 3

    redrive = ["pipeline", "redrive", str(file), "--bootstrap", broker.bootstrap, "--yes"]
    for _ in range(2):
        # The second time there is nothing left to move.
        assert main([*redrive, "--reason", "price", "--edit", edit_of_readme()]) == 0
    assert len(read_by_librdkafka(broker, "orders")) == 6
    # An hour later these windows are over, and what comes for them is too late.
    produce(broker, "orders", [order(5, 90)])
    assert run()["orders"].dead_letters == 0
    assert revenue() == {0: 7.5, 20: 4, 30: 2}
    produce(broker, "orders", [order(6, 2)])
    late = run()
    assert late["revenue"].late_rows == 1
    assert revenue() == {0: 7.5, 20: 4, 30: 2}
    told = {row["start"][14:16]: row["revenue"] for row in values(broker, "revenue")}
    assert told == {"00": 7.5, "20": 4}
    assert {row["id"] for row in table(tmp_path / "data/lake/orders")} == {
        f"o-{number}" for number in range(1, 7)
    }
    pipeline.replay(None, None, sinks=["revenue"], spark=spark)
    assert revenue() == {0: 9.5, 20: 4, 30: 2}
