"""Arrow columns from Python values, and the rows that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

# The errors that pyarrow raises for a value of another type: too large, not text, too precise.
DOES_NOT_FIT = (pa.ArrowException, ValueError, TypeError, OverflowError)

Reasons = dict[int, str]


def to_column(name: str, values: Sequence[Any], kind: pa.DataType, bad: Reasons) -> pa.Array:
    """Return a column of these values; one that does not fit becomes null, and a
    reason in `bad`."""
    try:
        return pa.array(values, kind)
    except DOES_NOT_FIT:
        pass
    fitting: list[Any] = []
    for row, value in enumerate(values):
        try:
            pa.array([value], kind)
        except DOES_NOT_FIT as problem:
            bad.setdefault(row, f"{name}: {problem}")
            fitting.append(None)
        else:
            fitting.append(value)
    return pa.array(fitting, kind)
