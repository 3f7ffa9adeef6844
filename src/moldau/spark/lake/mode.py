"""The mode of a sink: what becomes of the rows that a table has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

Mode = Literal["append", "upsert", "complete"]
Compression = Literal["zstd", "snappy"]


def require_settings(
    mode: Mode, keys: Sequence[str], compression: Compression, app_id: str
) -> None:
    """ValueError if a sink of any kind cannot be like this."""
    modes = get_args(Mode)
    if mode not in modes:
        raise ValueError(f"mode is {mode!r}, but must be one of {', '.join(modes)}")
    if (mode == "upsert") != bool(keys):
        raise ValueError(f"keys are needed for upsert, and only for upsert: mode is {mode!r}")
    if compression not in get_args(Compression):
        raise ValueError(f"compression is {compression!r}, but must be zstd or snappy")
    if not app_id:
        raise ValueError("app_id must not be empty; it names this writer in the table's log")
