"""`moldau log`: what lies in a data folder, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from moldau.testing import Broker
from tests.cli.conftest import Run

SEGMENT = "orders-0/00000000000000000000.log"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a broker left behind after a clean stop: ten batches of one record."""
    data = tmp_path_factory.mktemp("data")
    with Broker(data_dir=data) as broker:
        broker.create_topic("orders", index_interval_bytes=0)
        broker.create_topic("other")
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(10):
            producer.produce("orders", f"value {number}", b"\xff%d" % number, headers={"h": "1"})
            assert producer.flush(60) == 0
    return data


@pytest.fixture
def damaged(folder: Path) -> Iterator[Path]:
    """The same with a flipped bit in the middle."""
    path = folder / SEGMENT
    before = path.read_bytes()
    content = bytearray(before)
    content[len(content) // 2 + 40] ^= 1
    path.write_bytes(content)
    yield folder
    path.write_bytes(before)


def test_check_counts_what_there_is(moldau: Run, folder: Path) -> None:
    ended = moldau("log", "check", str(folder))
    assert ended.status == 0, ended
    rows = [line.split() for line in ended.out.splitlines()]
    assert rows[1][:6] == ["orders-0", "1", "10", "10", "0", "10"]
    assert "no damage" in ended.out


def test_check_takes_one_partition_and_speaks_json(moldau: Run, folder: Path) -> None:
    ended = moldau("log", "check", str(folder / "orders-0"), "--json")
    assert ended.status == 0
    [log] = ended.json["logs"]
    assert (log["log"], ended.json["damaged"]) == ("orders-0", False)
    [segment] = log["segments"]
    assert (segment["batches"], segment["end_offset"], segment["damage"]) == (10, 10, [])


def test_check_names_file_and_position_of_damage(moldau: Run, damaged: Path) -> None:
    ended = moldau("log", "check", str(damaged))
    assert ended.status == 1
    size = (damaged / SEGMENT).stat().st_size
    assert f"{damaged / SEGMENT} at position {size // 10 * 5}" in ended.out.replace("\n", "")
    assert "CRC" in ended.out
    ended = moldau("log", "check", str(damaged), "--json")
    assert ended.status == 1
    found = ended.json["logs"][0]["segments"][0]["damage"][0]
    assert (found["file"], found["heals"]) == (str(damaged / SEGMENT), False)


def test_check_tells_a_torn_index_from_torn_data(moldau: Run, folder: Path) -> None:
    index = (folder / SEGMENT).with_suffix(".index")
    before = index.read_bytes()
    assert before
    index.write_bytes(before + b"\0\0\0")
    try:
        ended = moldau("log", "check", str(folder), "--json")
    finally:
        index.write_bytes(before)
    assert ended.status == 1
    [found] = ended.json["logs"][0]["segments"][0]["damage"]
    assert (found["file"], found["position"], found["heals"]) == (str(index), len(before), True)


def test_check_works_beside_a_running_broker(moldau: Run, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("live", b"x")
        assert producer.flush(60) == 0
        before = (tmp_path / "live-0" / "00000000000000000000.log").read_bytes()
        ended = moldau("log", "check", str(tmp_path), "--json")
        assert ended.status == 0
        assert ended.json["logs"][0]["segments"][0]["records"] == 1
        assert (tmp_path / "live-0" / "00000000000000000000.log").read_bytes() == before


def test_dump_prints_batches_and_records(moldau: Run, folder: Path) -> None:
    ended = moldau("log", "dump", str(folder / "orders-0"))
    assert ended.status == 0
    assert "3..3" in ended.out
    assert "'value 3'" in ended.out
    assert "h=b'1'" in ended.out
    without = moldau("log", "dump", str(folder / SEGMENT), "--no-records").out
    assert "3..3" in without
    assert "value 3" not in without


def test_dump_speaks_json_and_begins_where_it_is_told(moldau: Run, folder: Path) -> None:
    ended = moldau("log", "dump", str(folder), "--json", "--offset", "4", "--max", "2")
    assert ended.status == 0
    first, second = ended.json_lines
    assert (first["base_offset"], second["base_offset"]) == (4, 5)
    [record] = first["records"]
    assert (record["offset"], record["value"]) == (4, "value 4")
    assert record["key_base64"] == "/zQ="
    assert record["headers"] == [["h", "1"]]


def test_dump_shows_what_comes_before_damage(moldau: Run, damaged: Path) -> None:
    ended = moldau("log", "dump", str(damaged / SEGMENT), "--json")
    assert ended.status == 1
    assert [line.get("base_offset") for line in ended.json_lines] == [0, 1, 2, 3, 4, None]
    assert "CRC" in ended.json_lines[-1]["damage"]


def test_a_folder_without_logs_is_an_error_that_says_so(moldau: Run, tmp_path: Path) -> None:
    for word in ("check", "dump"):
        ended = moldau("log", word, str(tmp_path))
        assert ended.status == 1
        assert "no log" in ended.err


@pytest.fixture(scope="module")
def transacted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with an aborted and a committed transaction."""
    data = tmp_path_factory.mktemp("transacted")
    with Broker(data_dir=data) as broker:
        broker.create_topic("orders")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
        producer.init_transactions(60)
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.produce("orders", b"x")
            assert producer.flush(60) == 0
            end(20)
    return data


def test_dump_names_the_ends_of_transactions(moldau: Run, transacted: Path) -> None:
    ended = moldau("log", "dump", str(transacted / SEGMENT), "--json")
    assert [line.get("marker") for line in ended.json_lines] == [None, "abort", None, "commit"]
    text = moldau("log", "dump", str(transacted / SEGMENT)).out
    assert "abort marker" in text
    assert "commit marker" in text


def test_check_finds_aborted_transactions_that_readers_would_not_be_told_of(
    moldau: Run, transacted: Path
) -> None:
    index = (transacted / SEGMENT).with_suffix(".txnindex")
    before = index.read_bytes()
    assert len(before) == 34
    assert moldau("log", "check", str(transacted / "orders-0")).status == 0
    try:
        index.unlink()
        missing = moldau("log", "check", str(transacted / "orders-0"), "--json")
        index.write_bytes(before + b"\0\0\0")
        torn = moldau("log", "check", str(transacted / "orders-0"), "--json")
    finally:
        index.write_bytes(before)
    assert (missing.status, torn.status) == (1, 1)
    [found] = missing.json["logs"][0]["segments"][0]["damage"]
    assert (found["file"], found["position"], found["heals"]) == (str(index), 0, False)
    assert "aborted at 1 is missing" in found["damage"]
    [found] = torn.json["logs"][0]["segments"][0]["damage"]
    assert (found["position"], found["heals"]) == (34, True)
