"""Locations: where tables can be, and where not."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.spark.lake import LakeError
from moldau.spark.lake.location import Location


def test_a_folder_is_the_same_for_the_driver_and_tasks_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.parse("lake/orders", None).uri == str(tmp_path / "lake" / "orders")
    assert Location.parse((tmp_path / "a b").as_uri(), None).uri == str(tmp_path / "a b")


def test_options_go_with_a_url_and_are_not_shown() -> None:
    location = Location.parse("s3://bucket/orders/", {"AWS_SECRET_ACCESS_KEY": "hidden"})
    assert location.uri == "s3://bucket/orders"
    assert location.options == {"AWS_SECRET_ACCESS_KEY": "hidden"}
    assert "hidden" not in repr(location)


def test_a_scheme_that_deltalake_does_not_write_to_is_refused() -> None:
    with pytest.raises(LakeError, match="not at hdfs://"):
        Location.parse("hdfs://node/orders", None)


def test_commits_that_could_overwrite_each_other_are_refused() -> None:
    with pytest.raises(LakeError, match="rows could be lost"):
        Location.parse("s3://bucket/orders", {"aws_s3_allow_unsafe_rename": "true"})
