"""Targets of sinks in a pipeline's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.spark.lake import LakeError
from moldau.spark.pipeline import PipelineError
from moldau.spark.pipeline.file.file import read_file
from moldau.spark.pipeline.file.settings import IcebergSinkSettings
from moldau.spark.pipeline.plan.lake_sinks import schema_in_table
from tests.spark.lake.iceberg.catalogs.asked import asked

SOURCE = """
[sources.orders]
topic = "orders"
format = "avro"
"""
SINK = """
[sinks.{name}]
from = "orders"
type = "iceberg"
{more}
"""


def problems(folder: Path, *parts: str) -> list[str]:
    path = folder / "test.toml"
    path.write_text("".join(parts), "utf-8")
    try:
        read_file(path)
    except PipelineError as problem:
        return [f"{each.line}: {each.message}" for each in problem.problems]
    return []


def sink(name: str, more: str) -> str:
    return SINK.format(name=name, more=more)


def test_an_iceberg_table_has_a_name_and_a_place(tmp_path: Path) -> None:
    nowhere = problems(tmp_path, SOURCE, sink("one", 'table = "shop.orders"'))
    assert nowhere == [
        "9: give 'warehouse', a folder for tables and their catalog, or 'catalog' with the "
        "settings of another catalog"
    ]
    unnamed = problems(tmp_path, SOURCE, sink("one", 'table = "orders"\nwarehouse = "lake"'))
    assert unnamed == ["9: 'orders' is not a catalog table name; write namespace.table"]
    rest = 'table = "shop.orders"\ncatalog = { type = "rest", uri = "http://localhost:8181" }'
    assert problems(tmp_path, SOURCE, sink("one", rest)) == []


@pytest.mark.parametrize("kind", ['type = "rest", ', ""])
def test_what_a_rest_catalog_calls_a_warehouse_is_no_path(tmp_path: Path, kind: str) -> None:
    with asked() as (uri, requests):
        more = f'table = "shop.orders"\nwarehouse = "prod"\ncatalog = {{ {kind}uri = "{uri}" }}'
        assert problems(tmp_path, SOURCE, sink("one", more)) == []
        file = read_file(tmp_path / "test.toml")
        settings = file.settings.sinks["one"]
        assert isinstance(settings, IcebergSinkSettings)
        with pytest.raises(LakeError, match=r"the catalog at http://127\.0\.0\.1.* failed"):
            schema_in_table(file, settings, settings.table)
        assert requests[0].endswith("?warehouse=prod")


def test_a_delta_table_may_have_a_name_in_glue(tmp_path: Path) -> None:
    def delta(more: str) -> list[str]:
        settings = sink("one", f'path = "lake/orders"\n{more}').replace('"iceberg"', '"delta"')
        return problems(tmp_path, SOURCE, settings)

    glue = 'catalog = { type = "glue", "glue.region" = "eu-central-1" }'
    assert delta(f'table = "shop.orders"\n{glue}') == []
    assert delta(f'table = "orders"\n{glue}') == [
        "10: 'orders' is not a Glue table name; write database.table"
    ]
    assert delta('table = "shop.orders"\ncatalog = { type = "rest" }') == [
        "11: a Delta table can be registered only in AWS Glue: set type = 'glue'"
    ]


def test_two_sinks_do_not_write_to_the_same_table(tmp_path: Path) -> None:
    same = 'table = "shop.orders"\nwarehouse = "lake"'
    found = problems(tmp_path, SOURCE, sink("one", same), sink("two", same))
    assert found == ["15: sink one already writes to shop.orders"]
    other = 'table = "shop.orders"\nwarehouse = "other"'
    assert problems(tmp_path, SOURCE, sink("one", same), sink("two", other)) == []


def test_evolution_is_for_registered_schemas(tmp_path: Path) -> None:
    place = sink("one", 'table = "shop.orders"\nwarehouse = "lake"')
    assert problems(tmp_path, 'evolution = "pause"\n', SOURCE, place) == []
    assert problems(tmp_path, SOURCE, 'evolution = "fail"\n', place) == []
    text = SOURCE.replace("avro", "string") + 'evolution = "add"\n'
    assert problems(tmp_path, text, place) == [
        "5: evolution is for registered schemas: avro, json-schema, protobuf"
    ]
    text = SOURCE.replace("avro", "string") + 'may_change = ["price"]\n'
    assert problems(tmp_path, text, place) == [
        "5: may_change is for registered schemas: avro, json-schema, protobuf"
    ]
    (wrong,) = problems(tmp_path, 'evolution = "sometimes"\n', SOURCE, place)
    assert "there is no choice 'sometimes'" in wrong


def test_what_a_catalog_is_told_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREDENTIAL", "very secret")
    path = tmp_path / "test.toml"
    catalog = 'catalog = { type = "rest", uri = "http://x", credential = "${ENV:CREDENTIAL}" }'
    path.write_text(SOURCE + sink("one", f'table = "shop.orders"\n{catalog}'), "utf-8")
    settings = read_file(path).settings.sinks["one"]
    assert isinstance(settings, IcebergSinkSettings)
    assert settings.catalog["credential"] == "very secret"
    assert "secret" not in repr(settings)


def test_an_iceberg_table_has_the_settings_of_a_merge_and_their_rules(tmp_path: Path) -> None:
    where = 'table = "shop.orders"\nwarehouse = "lake"\n'
    right = 'keys = ["id"]\norder_by = "lsn"\nscd = 2\nvalid_from = "at"\n'
    assert problems(tmp_path, SOURCE, sink("one", where + right)) == []
    for more, said in (
        ("scd = 2", "'scd' needs 'keys', the columns that identify a row"),
        ('merge_where = "true"', "'merge_where' needs 'keys', the columns that identify a row"),
        ('keys = ["id"]\nvalid_from = "at"', "'valid_from' is for scd = 2"),
        ('delete_retention = "long"', "'long' is not a time such as '10 seconds'"),
    ):
        (problem,) = problems(tmp_path, SOURCE, sink("one", where + more))
        assert said in problem
