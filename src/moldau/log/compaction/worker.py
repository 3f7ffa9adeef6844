"""The process that compacts one log: `python -m moldau.log.compaction.worker`.

A job comes in on stdin and its outcome leaves on stdout, both as one JSON object. It ends by itself
when its broker is gone.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Do the one job."""
    _give_way()
    # Only now, so that loading them takes nothing from the broker either.
    import msgspec

    from moldau.log.compaction.compactor import compact
    from moldau.log.compaction.job import Job
    from moldau.log.compaction.throttle import Orphaned

    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    try:
        outcome = compact(job)
    except Orphaned:
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(outcome))
    return 0


def _give_way() -> None:
    """Whoever produces and consumes goes first: this process takes what they leave."""
    os.nice(19)
    if hasattr(os, "SCHED_IDLE"):
        try:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        except OSError:
            # Where that is not permitted, being nice has to do.
            pass


if __name__ == "__main__":
    raise SystemExit(main())
