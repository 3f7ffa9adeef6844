"""The status of a pipeline before it has run: what its file says."""

from __future__ import annotations

from pathlib import Path

from moldau.spark.pipeline.file.file import read_file
from moldau.spark.pipeline.supervision.status import first_status

EXAMPLES = Path(__file__).parents[4] / "examples"


def targets(example: str) -> dict[str, str | None]:
    file = read_file(EXAMPLES / example / "pipeline.toml")
    return {sink.name: sink.target for sink in first_status(file, once=False).sinks}


def test_every_sink_says_where_it_writes() -> None:
    lake = EXAMPLES / "orders" / "data" / "lake"
    assert targets("orders") == {
        "orders": str(lake / "orders"),
        "revenue": str(lake / "revenue"),
        "final": "revenue",
    }
    assert all(targets("evolution").values())


def test_an_iceberg_sink_says_where_its_catalog_is() -> None:
    file = read_file(EXAMPLES / "evolution" / "pipeline.toml")
    sinks = first_status(file, once=False).sinks
    lake = str(EXAMPLES / "evolution" / "data" / "lake")
    assert {sink.warehouse for sink in sinks if sink.type == "iceberg"} == {lake}
    assert {sink.warehouse for sink in sinks if sink.type != "iceberg"} <= {None}
