"""Text values."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from moldau.spark.formats.arrow_columns import Reasons


class TextDecoder:
    """UTF-8, in one column; a record without a value is null."""

    def decode(self, values: Sequence[bytes | None]) -> tuple[list[pa.Array], Reasons]:
        bad: Reasons = {}
        texts: list[str | None] = []
        for row, value in enumerate(values):
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError as problem:
                bad[row] = f"not UTF-8: {problem.reason} at byte {problem.start}"
                texts.append(None)
        return [pa.array(texts, pa.string())], bad
