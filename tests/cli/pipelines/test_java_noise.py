"""Java's noise: what of its stderr a person sees."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from moldau.cli.pipelines.java_noise import NoiseFilter, as_log_line, java_noise_dropped

LOST = """Traceback (most recent call last):
  File "pyspark.zip/pyspark/daemon.py", line 95, in worker
BrokenPipeError: [Errno 32] Broken pipe
"""
CHAINED = """Traceback (most recent call last):
  File "pyspark.zip/pyspark/util.py", line 822, in local_connect_and_auth
ConnectionRefusedError: [Errno 111] Connection refused

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "pyspark.zip/pyspark/util.py", line 828, in local_connect_and_auth
pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET] Can not open socket
"""
MEANT = """Traceback (most recent call last):
  File "pyspark.zip/pyspark/daemon.py", line 95, in worker
MemoryError: none left
"""


def passed(text: str) -> str:
    lines: list[str] = []
    noise = NoiseFilter(lines.append)
    for line in text.splitlines(keepends=True):
        noise.feed(line)
    noise.close()
    return "".join(lines)


@pytest.mark.parametrize("noise", ["WARNING: Using incubator modules: x\n", LOST, CHAINED])
def test_noise_is_dropped_and_nothing_around_it(noise: str) -> None:
    assert passed(f"before\n{noise}after\n\nlast\n") == "before\nafter\n\nlast\n"


@pytest.mark.parametrize("text", ["plain\n\n  lines\n", MEANT, LOST.replace("daemon", "moldau")])
def test_all_else_is_handed_on(text: str) -> None:
    assert passed(text) == text


def test_a_traceback_that_is_cut_short_is_handed_on() -> None:
    assert passed(LOST[:60]) == LOST[:60]


def test_lines_become_log_lines_of_json_unless_they_are_such_or_blank() -> None:
    ours = '{"time":1767225600.1,"level":"info","logger":"moldau","message":"m"}\n'
    assert (as_log_line(ours), as_log_line("\n")) == (ours, "")
    found = json.loads(as_log_line('Exception in "main" \udcff\n'))
    assert found.pop("time") > 0
    text = 'Exception in "main" \ufffd'
    assert found == {"level": "warning", "logger": "spark", "message": text}


def test_processes_started_meanwhile_are_filtered(capfd: pytest.CaptureFixture[str]) -> None:
    program = "import sys; sys.stderr.write('WARNING: Using incubator modules\\nmatters\\n')"
    with java_noise_dropped():
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    seen = ""
    for _ in range(500):
        seen += capfd.readouterr().err
        if "matters" in seen:
            break
        subprocess.run(["true"], check=True)
    assert seen == "matters\n"
