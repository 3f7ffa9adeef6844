"""`moldau top`: a real cluster's numbers, and what is wrong."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moldau.cli.commands.top import url_of
from moldau.cli.top.picture import GroupRow, picture_of
from moldau.cli.top.sample import Sample, parse, take
from moldau.cli.top.screen import in_bytes, lines_of
from moldau.local.ports import free_ports
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.broker.wire_client import Client, make_batch
from tests.cli.conftest import Run
from tests.http.scraping import Scrape

PATIENCE_S = 60.0


def test_what_brokers_show_is_printed_once_and_found_by_their_settings(moldau: Run) -> None:
    (port,) = free_ports(1)
    with Broker(http_listen=f"127.0.0.1:{port}") as broker, Client(broker) as client:
        broker.create_topic("orders", partitions=2)
        client.produce("orders", make_batch(b"x"))
        words = ("--once", "--interval", "0.1", "--bootstrap", broker.bootstrap)
        ended = moldau("top", *words, "--json")
        assert ended.status == 0, ended.err

        def well() -> str | None:
            """What is shown when a busy machine does not hold up the broker."""
            shown = moldau("top", *words).out
            return None if "stalled" in shown else shown

        shown = until(well)
    (row,) = ended.json["brokers"]
    assert (row["broker"], row["url"], row["leads"]) == ("0", f"127.0.0.1:{port}", 2)
    assert row["is_controller"]
    assert row["memory_bytes"] > 1_000_000
    (topic,) = ended.json["topics"]
    assert (topic["topic"], topic["partitions"]) == ("orders", 2)
    assert not [each for each in ended.json["problems"] if "stalled" not in each]
    assert "no problems" in shown
    assert "orders" in shown


def test_a_cluster_without_http_is_an_error_that_says_what_to_do(moldau: Run) -> None:
    ended = moldau("top", "--once")
    assert ended.status == 1
    assert "no broker serves HTTP" in ended.err
    assert "--http HOST:PORT" in ended.err


def test_an_address_where_nobody_answers_is_named(moldau: Run) -> None:
    (port,) = free_ports(1)
    ended = moldau("top", "--once", "--http", f"http://127.0.0.1:{port}")
    assert ended.status == 1
    assert f"127.0.0.1:{port} cannot be read: connection refused" in ended.err


def test_it_draws_on_a_terminal_and_ctrl_c_leaves_it_as_it_was() -> None:
    with Broker(http_listen="127.0.0.1:0") as broker:
        broker.create_topic("orders")
        main, other = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "moldau", "top", "--http", broker.http_url, "--interval", "0.1"],
            stdin=other,
            stdout=other,
            stderr=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "200", "LINES": "50"},
        )
        os.close(other)
        try:
            drawn = read_until(main, b"no problems")
            process.send_signal(signal.SIGINT)
            drawn += read_until(main, b"\x1b[?1049l")
            assert process.wait(PATIENCE_S) == 0
            assert process.stderr is not None
            assert process.stderr.read() == b""
        finally:
            process.kill()
            process.wait(PATIENCE_S)
            os.close(main)
    assert b"\x1b[?1049h" in drawn
    assert b"orders" in drawn


def read_until(descriptor: int, wanted: bytes) -> bytes:
    got = b""
    deadline = time.monotonic() + PATIENCE_S
    while wanted not in got:
        ready, _, _ = select.select([descriptor], [], [], deadline - time.monotonic())
        assert ready, got
        try:
            got += os.read(descriptor, 65536)
        except OSError:
            break
    assert wanted in got, got
    return got


def sample(at: float, **values: float) -> Sample:
    text = "".join(f"{name} {value}\n" for name, value in values.items())
    return parse(text + 'moldau_build_info{broker="3"} 1\n', at)


def test_rates_are_of_the_time_between_two_samples_and_survive_a_restart() -> None:
    name = "kafka_server_brokertopicmetrics_bytesin_total"
    before, now = sample(10.0, **{name: 100}), sample(12.0, **{name: 300})
    assert now.rate(before, name) == 100.0
    assert now.rate(None, name) == 0.0
    assert sample(14.0, **{name: 50}).rate(now, name) == 25.0


def test_latency_is_that_of_the_last_interval() -> None:
    def buckets(fast: int, slow: int) -> str:
        return (
            f'moldau_request_seconds_bucket{{api="Produce",le="0.001"}} {fast}\n'
            f'moldau_request_seconds_bucket{{api="Produce",le="1.0"}} {fast + slow}\n'
            f'moldau_request_seconds_bucket{{api="Produce",le="+Inf"}} {fast + slow}\n'
        )

    before, now = parse(buckets(0, 1000), 1.0), parse(buckets(100, 1000), 2.0)
    found = now.quantile_ms(before, "Produce", 0.99)
    assert found is not None
    assert 0 < found <= 1.0
    assert now.quantile_ms(now, "Produce", 0.99) is None
    assert now.quantile_ms(before, "Fetch", 0.99) is None


def test_share_groups_are_added_up_over_the_brokers_that_keep_their_states() -> None:
    def shown(lag: int, late_s: int, more: str = "") -> Sample:
        of = '{group="workers",topic="jobs"}'
        text = f"moldau_sharegroup_lag{of} {lag}\nmoldau_sharegroup_lag_seconds_max{of} {late_s}\n"
        return parse(text + more, 1.0)

    members = 'kafka_consumergroup_members{consumergroup="workers"} 2\n'
    brokers = {"http://a:1": shown(3, 20, members), "http://b:1": shown(4, 10)}
    picture = picture_of(brokers, brokers, [])
    assert picture.groups == [GroupRow("workers", "jobs", 2, 7, 20.0)]


def test_what_is_wrong_comes_first_and_in_words() -> None:
    now = sample(
        2.0,
        moldau_fenced=1,
        kafka_server_replicamanager_underreplicatedpartitions=2,
        kafka_controller_kafkacontroller_offlinepartitionscount=1,
        moldau_loop_stall_seconds_total=0.5,
    )
    picture = picture_of({"http://a:1": now}, {"http://a:1": sample(1.0)}, ["b:1 cannot be read"])
    assert picture.problems == [
        "b:1 cannot be read",
        "broker 3 is out of touch with the cluster and leads nothing",
        "broker 3: 1 partitions have no leader",
        "broker 3: 2 partitions have replicas that are not in sync",
        "broker 3: its event loop is stalled 50% of the time",
        "0 of the brokers shown are the controller, not 1",
    ]
    lines = [str(line) for line in lines_of(picture)]
    assert lines[1] == "! b:1 cannot be read"


def test_the_sample_of_a_broker_is_what_prometheus_reads() -> None:
    with Broker(http_listen="127.0.0.1:0") as broker:
        broker.create_topic("orders")
        ours = take(broker.http_url)
        theirs = Scrape(broker.http_url)
    assert 'partition="' not in str(ours.series)
    for name in ("kafka_topic_partitions", "kafka_server_replicamanager_leadercount"):
        assert [value for _, value in ours.all(name)] == [each.value for each in theirs.find(name)]


@given(
    st.text(max_size=200)
    | st.builds("{}{{{}}} {}".format, st.sampled_from(["a", "0"]), st.text(), st.text(min_size=1))
)
@example("0 :")
def test_text_that_is_no_sample_is_passed_over(text: str) -> None:
    for series in parse(text + "\nlast 1", 1.0).series.values():
        assert all(isinstance(value, float) for _, value in series)


@pytest.mark.parametrize(
    ("listen", "protocol", "expected"),
    [
        ("", "PLAINTEXT", None),
        ("127.0.0.1:0", "PLAINTEXT", None),
        ("127.0.0.1:8081", "PLAINTEXT", "http://127.0.0.1:8081"),
        ("0.0.0.0:8081", "SASL_SSL", "https://kafka-1:8081"),
        ("[::1]:8081", "PLAINTEXT", "http://[::1]:8081"),
    ],
)
def test_the_settings_of_a_broker_tell_where_it_serves_http(
    listen: str, protocol: str, expected: str | None
) -> None:
    settings = {"http.listen": listen, "http.security.protocol": protocol}
    assert url_of(settings, "kafka-1") == expected


def test_bytes_are_shown_in_the_unit_that_fits() -> None:
    assert [in_bytes(each) for each in (0, 999, 1500, 2.5e9)] == [
        "0 B",
        "999 B",
        "1.5 KB",
        "2.5 GB",
    ]
