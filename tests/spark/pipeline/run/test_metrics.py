"""The metrics of a running pipeline."""

from __future__ import annotations

import socket

import httpx
import pytest
from msgspec.structs import replace

from moldau.client.pipelines.status import LastError, PipelineStatus
from moldau.http.thread import HttpThread
from moldau.spark.pipeline.run.metrics import PipelineMetrics
from moldau.spark.pipeline.run.progress import SinkProgress
from tests.http.scraping import Scrape

ORDERS = PipelineStatus(name="orders", run="1", state="running")


def test_the_progress_of_each_sink_is_shown_over_http() -> None:
    metrics = PipelineMetrics()
    metrics.tell(ORDERS)
    with HttpThread("127.0.0.1", 0, metrics.routes()) as server:
        assert Scrape(server.url).value("moldau_pipeline_up", pipeline="orders") == 1
        metrics.update(
            "orders",
            SinkProgress("raw", batch=3, batch_rows=40, batch_s=0.5, rows=100, written=90, lag=7),
        )
        metrics.update("orders", SinkProgress("late", batch=1, rows=5, dead_letters=2))
        for is_open in (False, True):
            scrape = Scrape(server.url, is_open=is_open)
            where = {"pipeline": "orders", "sink": "raw"}
            assert scrape.value("moldau_pipeline_rows_read_total", **where) == 100
            assert scrape.value("moldau_pipeline_rows_written_total", **where) == 90
            assert scrape.value("moldau_pipeline_lag_messages", **where) == 7
            assert scrape.value("moldau_pipeline_batch_seconds", **where) == 0.5
            late = {"pipeline": "orders", "sink": "late"}
            assert scrape.value("moldau_pipeline_dead_letters_total", **late) == 2
            assert not list(scrape.find("moldau_pipeline_lag_messages", sink="late"))
        assert httpx.get(f"{server.url}/healthz", timeout=60).json()["sinks"] == 2
        url = server.url
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz", timeout=60)


def test_health_over_http_tells_pipelines_that_fail_from_those_that_start_again() -> None:
    metrics = PipelineMetrics()
    metrics.tell(ORDERS)
    metrics.tell(PipelineStatus(name="users", run="2", state="running"))
    error = LastError(message="no broker answered", at_ms=1)
    with HttpThread("127.0.0.1", 0, metrics.routes()) as server:
        assert httpx.get(f"{server.url}/readyz", timeout=60).status_code == 200
        metrics.tell(replace(ORDERS, state="restarting", restarts=3, last_error=error))
        assert httpx.get(f"{server.url}/healthz", timeout=60).status_code == 200
        ready = httpx.get(f"{server.url}/readyz", timeout=60)
        assert ready.status_code == 503
        assert ready.json()["reason"] == "orders is restarting: no broker answered"
        assert ready.json()["pipelines"] == {"orders": "restarting", "users": "running"}
        scrape = Scrape(server.url)
        assert scrape.value("moldau_pipeline_up", pipeline="orders") == 0
        assert scrape.value("moldau_pipeline_restarts_total", pipeline="orders") == 3
        metrics.tell(replace(ORDERS, state="failed", last_error=error))
        assert httpx.get(f"{server.url}/healthz", timeout=60).status_code == 503


def test_an_address_that_is_taken_is_an_error_at_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = HttpThread("127.0.0.1", port, [])
        with pytest.raises(OSError, match="cannot listen on"):
            server.__enter__()
