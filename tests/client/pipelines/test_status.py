"""The status of pipelines: what the records of its topic say."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from moldau.client.pipelines.status import REQUEST, PipelineStatus, Request, Statuses, encode
from moldau.client.pipelines.status_topic import StatusTopic
from moldau.peer.cluster import Cluster
from moldau.peer.view import parse_bootstrap
from moldau.testing import Broker

ORDERS = PipelineStatus(name="orders", run="a", state="running", started_ms=1000, at_ms=1000)


def test_a_pipeline_that_has_been_silent_for_long_is_lost_unless_it_had_ended() -> None:
    assert ORDERS.state_at(1000 + 3 * ORDERS.every_ms) == "running"
    assert ORDERS.state_at(1001 + 3 * ORDERS.every_ms) == "lost"
    ended = PipelineStatus(name="orders", run="a", state="stopped", at_ms=1000)
    assert ended.state_at(10**12) == "stopped"


def test_a_request_is_for_the_run_that_it_names_or_for_the_one_that_ran_then() -> None:
    by_run = Request(name="orders", run="a", at_ms=0)
    assert by_run.is_for("orders", "a", 1000)
    assert not by_run.is_for("orders", "b", 0)
    assert not by_run.is_for("users", "a", 0)
    by_time = Request(name="orders", at_ms=2000)
    assert by_time.is_for("orders", "a", 1000)
    assert not by_time.is_for("orders", "a", 3000)


def test_readers_pass_over_what_they_do_not_know() -> None:
    statuses = Statuses()
    later = json.loads(encode(ORDERS)) | {"version": 9, "moods": ["good"]}
    statuses.apply(b"orders", json.dumps(later).encode())
    statuses.apply(b"x", b'{"kind": "poem"}')
    statuses.apply(b"y", b"no JSON")
    assert statuses.pipelines == {"orders": msgspec_replaced(ORDERS, version=9)}
    statuses.apply(b"orders\0request", encode(Request(name="orders")))
    assert statuses.requests.keys() == {"orders"}
    statuses.apply(b"orders" + REQUEST.encode(), None)
    assert not statuses.requests
    assert statuses.pipelines
    statuses.apply(b"orders", None)
    assert not statuses.pipelines


def msgspec_replaced(status: PipelineStatus, **more: object) -> PipelineStatus:
    from msgspec.structs import replace

    return replace(status, **more)


def test_all_who_read_the_topic_see_the_latest_status_of_each_pipeline() -> None:
    with Broker() as broker, Cluster(parse_bootstrap(broker.bootstrap)) as cluster:
        topic = StatusTopic(cluster)
        assert topic.read().pipelines == {}

        def require(_: int) -> None:
            with Cluster(parse_bootstrap(broker.bootstrap)) as own:
                StatusTopic(own).require()

        # Two pipelines may start at once.
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(require, range(2)))
        for at_ms in (5, 6):
            topic.write(msgspec_replaced(ORDERS, at_ms=at_ms))
        topic.write(PipelineStatus(name="users", run="b", state="failed"))
        asked = topic.ask_to_stop("orders", "a")
        with Cluster(parse_bootstrap(broker.bootstrap)) as own:
            other = StatusTopic(own).read()
            assert {name: each.at_ms for name, each in other.pipelines.items()} == {
                "orders": 6,
                "users": 0,
            }
            assert other.requests == {"orders": asked}
            assert "@" in asked.by
        topic.withdraw("orders")
        topic.forget("users")
        assert topic.read().pipelines.keys() == {"orders"}
        assert not topic.read().requests
