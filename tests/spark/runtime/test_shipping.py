"""Shipping: what goes to workers, without a cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from moldau.spark.runtime import probe
from moldau.spark.runtime.shipping import WorkersLack, _require_packages, build_archive


def test_the_archive_can_be_imported_by_a_python_without_this_package(tmp_path: Path) -> None:
    archive = build_archive(tmp_path / "moldau.zip")
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); "
        "import moldau.spark.runtime.probe as p, pyspark_moldau; print(p.__file__)"
    )
    # -S: no site-packages but those that are named.
    site = next(path for path in sys.path if path.endswith("site-packages"))
    ended = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": site},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == f"{archive}/moldau/spark/runtime/probe.py"


def test_a_worker_with_the_same_package_is_known_by_its_fingerprint(tmp_path: Path) -> None:
    ((_, python, missing, found),) = probe.answer([0])
    assert (python, missing) == (sys.executable, ())
    assert len(found) == 16
    (tmp_path / "moldau" / "__pycache__").mkdir(parents=True)
    (tmp_path / "moldau" / "a.py").write_text("a = 1", "utf-8")
    before = probe.fingerprint_of([str(tmp_path / "moldau")])
    (tmp_path / "moldau" / "__pycache__" / "a.pyc").write_bytes(b"kept beside it")
    assert probe.fingerprint_of([str(tmp_path / "moldau")]) == before
    (tmp_path / "moldau" / "a.py").write_text("a = 2", "utf-8")
    assert probe.fingerprint_of([str(tmp_path / "moldau")]) != before


def test_what_workers_lack_is_named_by_machine() -> None:
    lacking = probe.Answer("node7", "/opt/python", ("numba", "kio"), "")
    with pytest.raises(WorkersLack, match=r"node7 \(/opt/python\): numba, kio\. Install them"):
        _require_packages([lacking, lacking, probe.Answer("node8", "/opt/python", (), "")])
