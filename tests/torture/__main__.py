"""`python -m tests.torture [broker|cluster|transactions|sink|pipelines]`: see `torture.py` and the
files of these names."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.local.process import BrokerFailed
from tests.scenarios.ledger import Wrong as WrongInCluster
from tests.torture.cluster import ClusterTorture
from tests.torture.messages import Wrong
from tests.torture.torture import Torture
from tests.torture.transactions import TransactionTorture

if TYPE_CHECKING:
    from tests.torture.pipelines import PipelineTorture
    from tests.torture.sink import SinkTorture

    Kind = type[Torture | ClusterTorture | TransactionTorture | SinkTorture | PipelineTorture]

_CYCLES = {"broker": 200, "cluster": 60, "transactions": 60, "sink": 200, "pipelines": 200}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make torture", description="Break a broker or a cluster many times."
    )
    parser.add_argument("what", nargs="?", choices=list(_CYCLES), default="broker")
    parser.add_argument("--seed", type=int, default=None, help="repeat the choices of a run")
    parser.add_argument("--seconds", type=float, default=None, help="stop after so long")
    parser.add_argument("--minutes", type=float, default=None, help="stop after so long")
    parser.add_argument("--cycles", type=int, default=None, help="stop after so many failures")
    parser.add_argument("--folder", type=Path, help="where data and logs are kept, also at the end")
    given = parser.parse_args()
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    seconds = given.seconds if given.minutes is None else given.minutes * 60
    cycles = _CYCLES[given.what] if given.cycles is None and seconds is None else given.cycles
    deadline = None if seconds is None else time.monotonic() + seconds

    def is_over(done: int) -> bool:
        return (cycles is not None and done >= cycles) or (
            deadline is not None and time.monotonic() >= deadline
        )

    print(f"seed {seed}", flush=True)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="moldau-torture-"))
    folder.mkdir(parents=True, exist_ok=True)
    torture = _kind(given.what)(folder, seed, lambda text: print(text, flush=True))
    try:
        torture.run(is_over)
    except (Wrong, WrongInCluster, BrokerFailed) as problem:
        print(f"WRONG after {torture.summary}, seed {seed}: {problem}", file=sys.stderr)
        for deed in torture.last_deeds:
            print(f"  {deed}", file=sys.stderr)
        print(f"data and logs are in {folder}", file=sys.stderr)
        return 1
    finally:
        torture.close()
    if given.folder is None:
        shutil.rmtree(folder)
    print(f"all promises kept: {torture.summary}")
    return 0


def _kind(what: str) -> Kind:
    # Spark is an extra.
    if what == "sink":
        from tests.torture.sink import SinkTorture

        return SinkTorture
    if what == "pipelines":
        from tests.torture.pipelines import PipelineTorture

        return PipelineTorture
    kinds: dict[str, Kind] = {
        "broker": Torture,
        "cluster": ClusterTorture,
        "transactions": TransactionTorture,
    }
    return kinds[what]


if __name__ == "__main__":
    raise SystemExit(main())
