from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.versions import compare
from moldau.bench.scale import TINY

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bench reads /proc")


def test_two_versions_are_measured_in_turns_under_the_same_load(tmp_path: Path) -> None:
    started = tmp_path / "started"
    other = tmp_path / "moldau"
    other.write_text(f'#!/bin/sh\necho $1 >> {started}\nexec {sys.executable} -m moldau "$@"\n')
    other.chmod(0o755)
    said: list[str] = []

    table = compare([str(other)], ["requests"], 2, TINY, said.append)

    assert started.read_text().split() == ["broker", "broker"]
    assert [line.rpartition(" ")[2] == str(other) for line in said] == [True, False, False, True]
    rows = [line.split(" | ") for line in table[2:]]
    assert [row[0] for row in rows[::2]] == [
        "| Produce of 100 B, one in flight",
        "| Produce of 100 B, pipelined, 100",
    ]
    assert all(row[4].endswith(" % |") for row in rows)
