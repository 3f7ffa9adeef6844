"""The worker daemon: Spark forks its Python workers from it, with their modules already loaded.

Each worker would spend half a second on numba and Arrow, and hold them in memory of its own. Worse,
Spark collects garbage after every task, and with all of that loaded it takes 10 to 30 ms each time;
what is frozen before the fork is left alone. Where `moldau.spark.session` made the session, Spark
starts this as `python -m moldau.spark.runtime.worker_daemon WORKER_MODULE`; workers of other
sessions load what they need themselves.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

from pyspark import daemon

from moldau.spark.runtime.connections import quiet

READS_AND_WRITES = "pyspark.worker"


def load() -> None:
    """Load what tasks use, and keep it out of the workers' garbage collection."""
    import pyarrow as pa

    import moldau.spark.source.reading
    import moldau.spark.source.source  # noqa: F401

    # With its first value, Arrow loads pandas where that is installed.
    pa.scalar(0)
    gc.freeze()


if __name__ == "__main__":
    running: Any = daemon
    running.worker = quiet(daemon.worker)
    if READS_AND_WRITES in sys.argv[1:]:
        load()
    daemon.manager()
