"""`python -m tests.torture`: see `torture.py`."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.torture.messages import Wrong
from tests.torture.torture import Torture


def main() -> int:
    parser = argparse.ArgumentParser(prog="make torture", description="Kill a broker many times.")
    parser.add_argument("--seed", type=int, default=None, help="repeat the choices of a run")
    parser.add_argument("--seconds", type=float, default=None, help="stop after so long")
    parser.add_argument("--cycles", type=int, default=None, help="stop after so many kills")
    given = parser.parse_args()
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    cycles = 200 if given.cycles is None and given.seconds is None else given.cycles
    deadline = None if given.seconds is None else time.monotonic() + given.seconds

    def is_over(done: int) -> bool:
        return (cycles is not None and done >= cycles) or (
            deadline is not None and time.monotonic() >= deadline
        )

    print(f"seed {seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="moldau-torture-"))
    torture = Torture(folder, seed, lambda text: print(text, flush=True))
    try:
        torture.run(is_over)
    except Wrong as problem:
        print(f"WRONG after {torture.summary}, seed {seed}: {problem}", file=sys.stderr)
        for deed in torture.last_deeds:
            print(f"  {deed}", file=sys.stderr)
        print(f"data and the broker's log are in {folder}", file=sys.stderr)
        return 1
    finally:
        torture.close()
    shutil.rmtree(folder)
    print(f"all promises kept: {torture.summary}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
