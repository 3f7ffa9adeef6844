"""Beside Spark's own connector, fetched from Maven Central where it can be reached."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from docs.generate import PARITY
from tests.spark.own_connector import UNAVAILABLE

ROOT = Path(__file__).parents[2]
WITHIN_S = 900
# A part of the table a day: all of it takes minutes.
STEP = 4


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(WITHIN_S + 20)
def test_both_connectors_do_what_the_table_in_the_docs_says(tmp_path: Path) -> None:
    """If it fails for a good reason, `python -m tests.spark.parity` and `make docs` renew it."""
    found = tmp_path / "parity.json"
    first = date.today().toordinal() % STEP
    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.parity", str(found), str(first), str(STEP)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    if ended.returncode == UNAVAILABLE:
        pytest.skip(ended.stdout)
    assert ended.returncode == 0, ended.stderr[-3000:]
    tried, told = rows(found), rows(PARITY)
    assert len(tried) >= len(told) // STEP
    assert tried == {feature: told.get(feature) for feature in tried}


def rows(file: Path) -> dict[str, Any]:
    """Return what is said of each feature; the versions may be others."""
    parts = json.loads(file.read_text("utf-8"))["parts"]
    return {f"{part['title']}: {row['feature']}": row for part in parts for row in part["features"]}
