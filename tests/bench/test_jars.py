"""Jars that Maven fetches, and how often it is asked."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from bench.kafka import jars
from bench.kafka.jars import Artifact
from moldau.bench.errors import Unavailable

ARTIFACT = "spark-sql-kafka-0-10_2.13"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file where a Maven that finds nothing notes that it was asked."""
    tools, asked = tmp_path / "bin", tmp_path / "asked"
    tools.mkdir()
    maven = tools / "mvn"
    maven.write_text(f"#!/bin/sh\necho asked >> {asked}\necho '[ERROR] not found'\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setattr(jars, "_CACHE", tmp_path / "cache")
    return asked


def test_maven_is_asked_once_a_day_for_a_later_release_of_the_connector(
    tmp_path: Path, asked: Path
) -> None:
    older = tmp_path / "cache" / f"{ARTIFACT}-4.2.0"
    older.mkdir(parents=True)
    assert jars._nearest(ARTIFACT, "4.3.0") == ("4.2.0", older)
    assert not asked.exists()
    yesterday = time.time() - 25 * 3600
    os.utime(older, (yesterday, yesterday))
    for _ in range(2):
        assert jars._nearest(ARTIFACT, "4.3.0") == ("4.2.0", older)
    assert asked.read_text() == "asked\n"


def test_what_maven_cannot_find_is_said(asked: Path) -> None:
    wanted = Artifact("org.apache.spark", ARTIFACT, "4.3.0")
    with pytest.raises(Unavailable, match=r"could not fetch .*4.3.0.*not found"):
        jars.fetch("any", [wanted])
    assert asked.exists()
