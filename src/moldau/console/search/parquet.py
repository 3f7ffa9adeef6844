"""Exports as Parquet: a process that takes records in and writes a file, and then ends."""

from __future__ import annotations

import os
import sys
from typing import Any

from moldau.console.search.request import FoundRecord, read_frame

MODULE = "moldau.console.search.parquet"


def main() -> None:
    """Read records from standard input, and write Parquet to standard output."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open(0, "rb", closefd=False) as source:
        records = read_frame(source, list[FoundRecord]) or []
    header = pa.struct([("name", pa.string()), ("value", pa.binary())])
    columns: dict[str, Any] = {
        "partition": pa.array([each.partition for each in records], pa.int32()),
        "offset": pa.array([each.offset for each in records], pa.int64()),
        "timestamp": pa.array([each.timestamp for each in records], pa.timestamp("ms", tz="UTC")),
        "key": pa.array([each.key for each in records], pa.binary()),
        "value": pa.array([each.value for each in records], pa.binary()),
        "headers": pa.array(
            [[{"name": name, "value": value} for name, value in each.headers] for each in records],
            pa.list_(header),
        ),
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    with os.fdopen(os.dup(1), "wb") as out:
        out.write(sink.getvalue().to_pybytes())
    sys.stdout.flush()


if __name__ == "__main__":
    main()
