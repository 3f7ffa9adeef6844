"""The last windows of a bounded run, which it writes on request.

In the output mode `append`, a window is written once the watermark has passed it, and a row of an
outer join once nothing can match it any more. Those that are open when the input ends stay in the
state until more events come. To write them as they stand, a run copies the query's checkpoint and
lets Spark run one more batch on the copy, without records and with a watermark beyond all windows.
The checkpoint itself stays as it is, so a later run goes on with the same windows, and writes them
again when they are complete.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from moldau.spark.pipeline.errors import PipelineError, Problem
from moldau.spark.pipeline.run.checkpoint import Checkpoint

# The end of the year 9999: late enough for all, and no overflow when Spark counts microseconds.
END_OF_TIME_MS = 253_402_300_799_000
DONE = "done"


def prepare_copy(checkpoint: Checkpoint, sink: str) -> Path | None:
    """Return a checkpoint whose next batch closes all windows; None if that was done before."""
    last = checkpoint.last_committed(sink)
    if last is None:
        return None
    copy = Path(checkpoint.location, "last", sink)
    done = copy.with_name(f"{sink}.{DONE}")
    if done.exists() and done.read_text("utf-8") == str(last):
        return None
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(checkpoint.of_sink(sink), copy)
    offsets = copy / "offsets"
    for later in (each for each in offsets.iterdir() if each.name.isdecimal()):
        if int(later.name) > last:
            later.unlink()
    _add_batch(offsets, last)
    return copy


def finish_copy(checkpoint: Checkpoint, sink: str) -> None:
    """The windows are written: remember up to where, and drop the copy."""
    copy = Path(checkpoint.location, "last", sink)
    last = checkpoint.last_committed(sink)
    copy.with_name(f"{sink}.{DONE}").write_text(str(last), "utf-8")
    shutil.rmtree(copy, ignore_errors=True)


def _add_batch(offsets: Path, last: int) -> None:
    lines = (offsets / str(last)).read_text("utf-8").splitlines()
    if lines[0] != "v1":
        raise PipelineError(
            Problem(f"{offsets} has the format {lines[0]!r}, but only 'v1' can be read")
        )
    metadata = json.loads(lines[1])
    metadata["batchWatermarkMs"] = END_OF_TIME_MS
    lines[1] = json.dumps(metadata)
    (offsets / str(last + 1)).write_text("\n".join(lines), "utf-8")
    # Spark's checksum of the file that was there in the original, if any, is not that of this one.
    (offsets / f".{last + 1}.crc").unlink(missing_ok=True)
