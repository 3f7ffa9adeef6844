"""The version that everything since must be able to follow: installed from this clone's history."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMIT = "54dc03b"

# What its brokers may log as they stop, about to ask a leader for more; mended since.
ITS_FAULT = "handle: <Handle Fetcher._tell>\nTraceback"


def install(folder: Path) -> Path:
    """Install the earlier version, without what it depends on; skip where there is no history."""
    known = subprocess.run(
        ["git", "cat-file", "-e", f"{COMMIT}^{{commit}}"],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    if known.returncode != 0:
        pytest.skip(f"there is no commit {COMMIT} here: this is not a clone, or a shallow one")
    archive, source, installed = folder / "earlier.tar", folder / "source", folder / "installed"
    source.mkdir(parents=True)
    _run(["git", "archive", "--output", str(archive), COMMIT], ROOT)
    _run(["tar", "-xf", str(archive)], source)
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    words += ["--no-deps", "--no-build-isolation", "--target", str(installed), str(source)]
    _run(words, folder)
    return installed


def _run(words: list[str], folder: Path) -> None:
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
