"""Edits of dead letters: an SQL expression that gives each letter its new value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.client.pipelines.letters import PipelineLetter
from moldau.spark.errors import OptionError
from moldau.spark.pipeline.reasons import in_words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = (
    "key string, value string, bytes binary, reason string, source string, topic string, "
    "partition int, offset bigint, timestamp timestamp, headers map<string, string>"
)


class SqlEdit:
    """An expression of Spark's SQL over the columns of a letter.

    `value` and `key` are text, `bytes` is the value as it is; the others are of the record's
    origin. NULL leaves a letter where it is. OptionError for what is no such expression.
    """

    def __init__(self, spark: SparkSession, expression: str) -> None:
        from pyspark.errors import PySparkException

        self._spark = spark
        self._expression = expression
        try:
            kind = self._evaluated([]).schema["edited"].dataType.typeName()
        except PySparkException as problem:
            raise OptionError(f"the edit is not an SQL expression: {in_words(problem)}") from None
        if kind not in ("string", "binary"):
            raise OptionError(f"the edit gives {kind}, not a string: use to_json(...)")

    def __call__(self, letters: Sequence[PipelineLetter]) -> list[bytes | None]:
        from pyspark.errors import PySparkException

        try:
            rows = self._evaluated(letters).orderBy("_number").collect()
        except PySparkException as problem:
            raise OptionError(f"the edit failed: {in_words(problem)}") from None
        return [None if row["edited"] is None else _as_bytes(row["edited"]) for row in rows]

    def _evaluated(self, letters: Sequence[PipelineLetter]) -> DataFrame:
        from datetime import UTC, datetime

        rows = [
            (
                number,
                _text(letter.key),
                _text(letter.value),
                letter.value,
                letter.reason,
                letter.source,
                letter.origin.topic,
                letter.origin.partition,
                letter.origin.offset,
                datetime.fromtimestamp(letter.timestamp_ms / 1000, UTC),
                {name: _text(_as_bytes(value)) for name, value in letter.headers},
            )
            for number, letter in enumerate(letters)
        ]
        frame = self._spark.createDataFrame(rows, f"_number int, {_COLUMNS}")
        return frame.selectExpr("_number", f"{self._expression} AS edited")


def _as_bytes(value: str | bytes | bytearray | None) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else bytes(value)


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")
