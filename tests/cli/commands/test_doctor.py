"""`moldau doctor`: what it finds and what it advises."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.checks import Status, check_data_dir, check_port, parse_api_versions
from moldau.testing import Broker
from tests.broker.api.transactions.producing import Producer
from tests.broker.wire_client import append_open
from tests.cli.conftest import Ended, Run


def by_check(ended: Ended) -> dict[str, Any]:
    return {finding["check"]: finding for finding in ended.json}


def test_a_healthy_set_up_passes_every_check(moldau: Run, tmp_path: Path) -> None:
    ended = moldau(
        "doctor", "--json", "--round-trip", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:1"
    )
    found = by_check(ended)
    reached = ("name", "tcp", "protocol", "metadata", "advertised", "round trip", "data folder")
    assert {name: found[name]["status"] for name in reached} == dict.fromkeys(reached, "ok")


def test_the_text_names_each_check_and_what_to_do(moldau: Run, tmp_path: Path) -> None:
    ended = moldau("doctor", "--bootstrap", "127.0.0.1:1", "--data-dir", str(tmp_path))
    assert ended.status == 1
    assert "fail  tcp           127.0.0.1:1: connection refused\n" in ended.out
    assert "try: start a broker with `moldau broker`" in ended.out


def test_a_name_that_is_not_known_is_found(moldau: Run) -> None:
    ended = moldau("doctor", "--json", "--bootstrap", "no-such-host.invalid:9092")
    assert ended.status == 1
    assert by_check(ended)["name"]["status"] == "fail"


def test_a_listener_that_is_no_broker_is_found(moldau: Run) -> None:
    def answer_like_a_web_server(server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer_like_a_web_server, args=(server,), daemon=True).start()
        ended = moldau("doctor", "--json", "--bootstrap", f"127.0.0.1:{server.getsockname()[1]}")
        server.shutdown(socket.SHUT_RDWR)
    finding = by_check(ended)["protocol"]
    assert finding["status"] == "fail"
    assert "does not speak Kafka's protocol" in finding["detail"]


def test_an_advertised_address_that_cannot_be_reached_is_found(moldau: Run) -> None:
    with Broker({"advertised.listeners": "127.0.0.1:1"}) as broker:
        ended = moldau("doctor", "--json", "--bootstrap", broker.bootstrap)
    finding = by_check(ended)["advertised"]
    assert finding["status"] == "fail"
    assert "--advertise" in finding["advice"]


def test_a_port_is_free_or_has_a_broker_or_is_taken(moldau_session_broker: Broker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        taken.close()
        assert check_port("127.0.0.1", port).status is Status.OK
    running = check_port("127.0.0.1", moldau_session_broker.port)
    assert running.status is Status.OK
    assert "a broker is running" in running.detail


def test_a_data_folder_that_is_a_file_is_found(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    (finding,) = check_data_dir(file)
    assert finding.status is Status.FAIL
    assert "is not a folder" in finding.detail


@given(st.binary(max_size=200))
def test_any_answer_of_a_stranger_is_an_answer_or_an_error(answer: bytes) -> None:
    try:
        versions = parse_api_versions(answer)
    except ValueError:
        return
    assert all(len(entry) == 2 for entry in versions.values())


def transactions(moldau: Run, broker: Broker, data_dir: Path) -> list[Any]:
    ended = moldau(
        "doctor", "--json", "--bootstrap", broker.bootstrap, "--data-dir", str(data_dir),
        "--listen", "127.0.0.1:1",
    )  # fmt: skip
    return [finding for finding in ended.json if finding["check"] == "transactions"]


def test_a_hanging_transaction_is_found_with_the_command_that_ends_it(
    moldau: Run, moldau_broker: Broker, tmp_path: Path
) -> None:
    (fine,) = transactions(moldau, moldau_broker, tmp_path)
    assert (fine["status"], fine["detail"]) == ("ok", "none is open")
    moldau_broker.create_topic("orders")
    producer = Producer(moldau_broker).init()
    producer.produce("orders", b"known")
    (fine,) = transactions(moldau, moldau_broker, tmp_path)
    assert (fine["status"], fine["detail"]) == ("ok", "none hanging; open in 1 partition")
    append_open(moldau_broker, "orders", b"nobody knows")
    (bad,) = transactions(moldau, moldau_broker, tmp_path)
    assert bad["status"] == "fail"
    assert bad["detail"].startswith("orders-0: a transaction of producer 9 hangs")
    words = bad["advice"].split()
    assert words[0] == "moldau"
    assert moldau(*words[1:], "--yes", "--bootstrap", moldau_broker.bootstrap).status == 0
    assert transactions(moldau, moldau_broker, tmp_path) == [fine]
    producer.client.close()


def test_nobody_is_told_to_abort_a_transaction_of_the_sink(
    moldau: Run, moldau_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be decided, while the driver that would commit it is down."""
    moldau_broker.create_topic("orders")
    producer = Producer(moldau_broker, id="moldau-sink/query/orders/run/1").init()
    producer.produce("orders", b"x")
    monkeypatch.setattr("moldau.peer.hanging.LONG_S", 0)
    (late,) = transactions(moldau, moldau_broker, tmp_path)
    assert "transactions abort" not in late["advice"]
    assert "moldau transactions recover" in late["advice"]
    command = ("transactions", "abort", producer.id, "--yes", "--bootstrap")
    refused = moldau(*command, moldau_broker.bootstrap)
    assert (refused.status, "moldau transactions recover" in refused.err) == (1, True)
    assert producer.state() == "Ongoing"
    assert moldau(*command, moldau_broker.bootstrap, "--lose-rows").status == 0
    assert producer.state() != "Ongoing"
    producer.client.close()


def test_who_holds_readers_far_behind_is_named(
    moldau: Run, moldau_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moldau_broker.create_topic("orders")
    first, second = Producer(moldau_broker).init(), Producer(moldau_broker).init()
    first.produce("orders", b"x")
    second.produce("orders", b"y")
    monkeypatch.setattr("moldau.peer.hanging.MANY_MESSAGES", 2)
    (late,) = transactions(moldau, moldau_broker, tmp_path)
    assert late["status"] == "warn"
    assert f"orders-0: the transaction of {first.id} has been open for" in late["detail"]
    assert "2 messages after it are not shown" in late["detail"]
    assert f"moldau transactions abort {first.id}" in late["advice"]
    command = ("transactions", "abort", first.id, "--yes", "--bootstrap", moldau_broker.bootstrap)
    assert moldau(*command).status == 0
    (late,) = transactions(moldau, moldau_broker, tmp_path)
    assert f"the transaction of {second.id}" in late["detail"]
    second.end(commits=True)
    second.until("CompleteCommit")
    (fine,) = transactions(moldau, moldau_broker, tmp_path)
    assert fine["status"] == "ok"
    for each in (first, second):
        each.client.close()
