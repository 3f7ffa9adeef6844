"""A test that hangs fails, and the others run."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clean_tree import ROOT

HANGING = """
import signal, subprocess, sys, threading, time
import pytest

@pytest.mark.timeout(1)
def test_waiting_for_a_process():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(9)"]) as process:
        process.wait()

@pytest.fixture
def slow_to_end():
    yield
    threading.Event().wait()

@pytest.mark.timeout(1)
def test_that_hangs_in_its_fixture(slow_to_end):
    pass

@pytest.mark.timeout(1)
def test_out_of_reach_of_signals():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(1000)

@pytest.mark.timeout(30)
def test_that_is_well():
    pass
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_hang_of_any_kind_is_the_failure_of_its_test(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.hangs", "-p", "no:cacheprovider"),
            *("-n", "1", "-c", ROOT / "pyproject.toml", f"--rootdir={tmp_path}", tmp_path),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout
    failed = set(re.findall(r"(FAILED|ERROR) \S*::(\w+)", ran.stdout))
    assert failed == {
        ("FAILED", "test_waiting_for_a_process"),
        ("ERROR", "test_that_hangs_in_its_fixture"),
        ("FAILED", "test_out_of_reach_of_signals"),
    }
    # One of them hung only when it was over.
    assert "2 failed, 2 passed, 1 error" in ran.stdout


INTERRUPTING = """
import os, signal, subprocess, sys
import pytest

def test_ctrl_c_reaches_programs():
    program = "import time; print('on', flush=True); time.sleep(60)"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == -signal.SIGINT
        finally:
            process.kill()
"""


def test_programs_end_by_ctrl_c_where_a_script_runs_the_tests_in_its_background(
    tmp_path: Path,
) -> None:
    """There it is ignored, which children inherit."""
    (tmp_path / "test_interrupting.py").write_text(INTERRUPTING)
    # As `make test &` in a script has it.
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-p", "tests.conftest"),
                *("-p", "no:cacheprovider", "-p", "no:xdist", "-c", ROOT / "pyproject.toml"),
                *(f"--rootdir={tmp_path}", tmp_path),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    finally:
        signal.signal(signal.SIGINT, ignored)
    assert ran.returncode == 0, ran.stdout
    assert "1 passed" in ran.stdout
