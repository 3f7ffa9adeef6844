"""The progress of a pipeline, as users read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from moldau.spark.pipeline.plan.sources import observation
from moldau.spark.source.behind import behind


@dataclass(frozen=True, slots=True)
class SinkProgress:
    """One sink, after its latest batch with something in it.

    `rows` are records read; how many were `written` is known of tables and topics. `lag` counts the
    records that the topics have and no batch has read; `dead_letters` those that did not parse.

    `late_rows` is what Spark dropped behind the watermark, counted as Spark does: of joins the
    records, of aggregations the groups of each batch, after their records were summed up. So a row
    may stand for many records. `open_rows` are in the state, of windows and joins that are not
    complete and so not written; where every change is written, there are none.
    """

    sink: str
    batch: int = -1
    batch_rows: int = 0
    batch_s: float = 0.0
    rows_per_s: float = 0.0
    rows: int = 0
    written: int | None = None
    lag: int | None = None
    dead_letters: int = 0
    late_rows: int = 0
    open_rows: int = 0
    watermark: str = ""
    is_done: bool = False

    def after(self, report: Mapping[str, Any], counted: Iterable[str]) -> SinkProgress:
        """With one more of Spark's reports; `counted` are the sources whose bad records count."""
        rows = int(report["numInputRows"])
        took_s = report["batchDuration"] / 1000
        observed = report.get("observedMetrics") or {}
        bad = sum(
            int(observed[observation(source)]["dead_letters"])
            for source in counted
            if observation(source) in observed
        )
        lags = [_lag(source) for source in report["sources"]]
        known = [lag for lag in lags if lag is not None]
        operators = report["stateOperators"]
        late = sum(int(each.get("numRowsDroppedByWatermark", 0)) for each in operators)
        return replace(
            self,
            batch=int(report["batchId"]),
            batch_rows=rows,
            batch_s=took_s,
            rows_per_s=rows / took_s if took_s else 0.0,
            rows=self.rows + rows,
            lag=sum(known) if known else self.lag,
            dead_letters=self.dead_letters + bad,
            late_rows=self.late_rows + late,
            open_rows=sum(int(each["numRowsTotal"]) for each in operators if _waits(each)),
            watermark=report.get("eventTime", {}).get("watermark", self.watermark),
        )


def _waits(operator: Mapping[str, Any]) -> bool:
    """Return whether rows of this operator's state are still to be written; others only remember
    keys."""
    return not str(operator.get("operatorName", "")).startswith(("dedupe", "globalLimit"))


def _lag(source: Mapping[str, Any]) -> int | None:
    found = behind(source.get("endOffset"), source.get("latestOffset"))
    return None if found is None else sum(found.values())
