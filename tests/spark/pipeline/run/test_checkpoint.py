"""The checkpoint folder: its lock and whose it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from moldau.spark.pipeline import CheckpointInUse, PipelineError
from moldau.spark.pipeline.run.checkpoint import Checkpoint
from tests.processes import started

HOLDS = """
import sys
from moldau.spark.pipeline.run.checkpoint import Checkpoint
held = Checkpoint(sys.argv[1], "first")
held.acquire({"raw": ["views"]})
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_told_who_has_the_checkpoint(tmp_path: Path) -> None:
    with started(
        [sys.executable, "-c", HOLDS, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(CheckpointInUse, match=rf"in use by process {holder.pid} .*\(first\)"):
            Checkpoint(str(tmp_path), "first").acquire({"raw": ["views"]})
        with pytest.raises(CheckpointInUse):
            Checkpoint(str(tmp_path), "first").require_free()
        # Even an end without a word gives the lock back.
        holder.kill()
    Checkpoint(str(tmp_path), "first").acquire({"raw": ["views"]})


def test_a_checkpoint_belongs_to_one_pipeline(tmp_path: Path) -> None:
    first = Checkpoint(str(tmp_path), "first")
    first.acquire({"raw": ["views"]})
    first.release()
    with pytest.raises(PipelineError, match="belongs to the pipeline 'first'"):
        Checkpoint(str(tmp_path), "second").acquire({"raw": ["views"]})
    # What is refused holds nothing.
    first.acquire({"raw": ["views"]})


def test_other_sources_for_a_sink_with_progress_are_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path), "first")
    checkpoint.acquire({"raw": ["views"]})
    checkpoint.release()
    offsets = Path(checkpoint.of_sink("raw"), "offsets")
    offsets.mkdir(parents=True)
    (offsets / "3").write_text("v1")
    assert checkpoint.last_batch("raw") == 3
    with pytest.raises(PipelineError, match="now reads views, visits, but read views before"):
        checkpoint.acquire({"raw": ["visits", "views"]})
    checkpoint.acquire({"raw": ["views"], "new": ["visits"]})


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match="file/checkpoint: Not a directory"):
        Checkpoint(str(tmp_path / "file" / "checkpoint"), "first").acquire({})
