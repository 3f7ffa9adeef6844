"""The lag of a stream, from what Spark reports."""

from __future__ import annotations

import json

from moldau.spark.source.behind import behind, lag_of

END = {"orders": {"0": 10, "1": 4}, "@id 0c2f0000-0000-0000-0000-000000000000 orders": {}}
LATEST = {"orders": {"0": 10, "1": 10, "2": 3}}


def test_the_lag_is_that_of_the_partition_least_and_most_behind_and_the_average() -> None:
    lag = lag_of(json.dumps(END), json.dumps(LATEST))
    assert lag is not None
    assert (lag.least, lag.most, lag.average, lag.total) == (0, 6, 3, 9)
    assert lag.description == "Moldau: orders (3 partitions)"
    assert lag.to_metrics() == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "6",
        "avgOffsetsBehindLatest": "3.0",
    }


def test_a_log_that_was_cut_short_is_not_less_than_nothing_behind() -> None:
    assert behind({"orders": {"0": 10}}, {"orders": {"0": 7}}) == {("orders", 0): 0}


def test_sources_of_other_kinds_have_no_lag() -> None:
    assert lag_of(None, None) is None
    assert lag_of("5", "7") is None
    assert lag_of('{"x": 5}', '{"x": 7}') is None
    assert lag_of("not JSON", "not JSON") is None
    assert lag_of({}, {}) is None
