"""Failures of `make simulate`, told as the documentation says: here of a mutated product."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from pathlib import Path

import pytest

from tests.simulation.mutations.replication import REPLICATION
from tests.simulation.scenario.play import play
from tests.simulation.scenario.scenario import scenario

# Every seed fails with it.
_NAME = "a leader commits what its followers do not have"
_SEED, _LASTS_S = 1, 20.0


@pytest.mark.slow
def test_a_seed_that_fails_is_shrunk_written_down_and_ends_with_status_1(tmp_path: Path) -> None:
    (mutation,) = (each for each in REPLICATION if each.name == _NAME)
    said = io.StringIO()
    sys.argv = ["simulate", "--seed", str(_SEED), "--lasts", str(_LASTS_S)]
    whole = scenario(_SEED, _LASTS_S)
    with mutation.applied(), contextlib.chdir(tmp_path):
        with contextlib.redirect_stdout(said), pytest.raises(SystemExit) as ended:
            runpy.run_module("tests.simulation", run_name="__main__")
        first = play(whole)
    assert ended.value.code == 1
    assert first.failure is not None

    lines = said.getvalue().splitlines()
    assert f"SEED {_SEED} FAILED after {first.simulated_s:.1f} s: {first.failure}" in lines
    assert f"again: make simulate SEED={_SEED}" in lines
    assert any(line.startswith("1 seeds, ") and line.endswith(" 1 failed") for line in lines)
    assert lines[-1] == f"failed: {_SEED}"

    # What is left is less, and fails in the same way.
    shrunk = lines[lines.index("shrunk to:") + 1 :]
    (end,) = (place for place, line in enumerate(shrunk) if line.startswith("which fails: "))
    parts = len(whole.loads) + len(whole.faults)
    assert shrunk[0].startswith(f"seed {_SEED}: ")
    assert 0 < end - 1 < parts
    failure = shrunk[end].removeprefix("which fails: ")
    assert "which may be elected, has it only up to" in failure

    folder = Path(".cache/simulation")
    as_text, as_page = folder / f"seed-{_SEED}.txt", folder / f"seed-{_SEED}.html"
    assert f"what happened: {as_text} and {as_page}" in lines
    text = (tmp_path / as_text).read_text("utf-8")
    assert text.startswith("\n".join(shrunk[:end]))
    assert f"\nFAILURE: {failure}\n" in text
    # Every message is there, and the last line is what went wrong.
    assert "-> " in text
    assert text.splitlines()[-1].startswith("# ")
    page = (tmp_path / as_page).read_text("utf-8")
    for kind in ("message", "log", "violation"):
        assert f'<tr class="{kind}">' in page
    assert f"<h1>Seed {_SEED}</h1>" in page
