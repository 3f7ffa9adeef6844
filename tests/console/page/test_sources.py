"""The page's own checks: types and units, and how much a browser has to load."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

import moldau.console
from tools.console import usable_node

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parents[3] / "console"
MOST_BYTES = 150_000


@pytest.mark.parametrize("script", ["check", "test"])
def test_types_and_units_of_the_page_are_right(script: str) -> None:
    npm = shutil.which("npm")
    if usable_node() is None or npm is None:
        pytest.skip("there is no Node on the PATH that is new enough")
    if not (SOURCES / "node_modules").exists():
        pytest.skip("the page's packages are not installed: run `make console`")
    done = subprocess.run(
        [npm, "run", "--silent", script],
        cwd=SOURCES,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_browser_loads_little_and_nothing_from_elsewhere() -> None:
    page = Path(moldau.console.__path__[0]) / "page"
    if not page.exists():
        pytest.skip("the console's page is not built: run `make console`")
    files = [path for path in page.rglob("*") if path.is_file()]
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) <= MOST_BYTES
    index = (page / "index.html").read_text("utf-8")
    assert "//" not in index.replace("<!doctype html>", "")
    assert "<style" not in index
    assert "<script>" not in index
