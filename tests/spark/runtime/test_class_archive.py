"""Spark's Java in tests, with an archive of its classes and without."""

from __future__ import annotations

import subprocess
from pathlib import Path

from moldau.spark.runtime.java import find_java_home
from tests.spark.class_archive import quick_java


def test_an_archive_is_used_once_it_is_there(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    assert "SharedArchiveFile" not in quick_java(archive)
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive} " in quick_java(archive)


def test_an_archive_that_java_cannot_use_is_passed_over_in_silence(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    archive.write_bytes(b"of another Java" * 1000)
    home = find_java_home()
    java = "java" if home is None else str(home / "bin" / "java")
    command = [java, *quick_java(archive).split(), "-version"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "archive" not in ended.stdout + ended.stderr
