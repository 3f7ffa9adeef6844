"""Searches in a broker's own files find what a fetch brings, whatever becomes of the files."""

from __future__ import annotations

import random
import shutil
import struct
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from moldau.peer.cluster import Cluster
from moldau.peer.view import parse_bootstrap
from moldau.testing import Broker
from tests.console.page.filling import fill

pytest.importorskip("pyarrow")

from moldau.arrow.decode import Decoder
from moldau.console.search.columns import DECODED
from moldau.console.search.reading import RangeReader
from moldau.console.search.request import OwnBroker, Range
from moldau.console.search.segments import SegmentFiles
from moldau.log.files.properties import PARTITION_METADATA, encode_topic_id, read_topic_id
from moldau.peer.fetcher import PartitionFetcher
from moldau.records.batch import CorruptBatch

COUNT = 6_000
SMALL = {"segment_bytes": 300_000}
_MANY = 1 << 30
INDEX_ENTRY = struct.Struct(">ii")
_dice = random.Random(7)
# Not compressible, so that there are many segments.
VALUES = [_dice.randbytes(300).hex() for _ in range(COUNT)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(parse_bootstrap(broker.bootstrap)) as cluster:
        yield cluster


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where each fetch begins."""
    offsets: list[int] = []
    fetch = PartitionFetcher.fetch

    def noted(fetcher: PartitionFetcher, offset: int) -> Any:
        offsets.append(offset)
        return fetch(fetcher, offset)

    monkeypatch.setattr(PartitionFetcher, "fetch", noted)
    return offsets


def own(broker: Broker, node_id: int = 0) -> OwnBroker:
    return OwnBroker(node_id, str(broker.data_dir))


def topic_of(broker: Broker, **settings: Any) -> str:
    """Return a topic with messages in batches of about 60 kilobytes."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, 1, **SMALL)
    producer = Producer({**broker.librdkafka_settings, "batch.num.messages": 100, **settings})
    for number, value in enumerate(VALUES):
        producer.produce(name, value, str(number))
        producer.poll(0)
    assert producer.flush(30) == 0
    return name


def read(
    cluster: Cluster, topic: str, wanted: Range, broker: OwnBroker | None
) -> list[tuple[int, bytes, bytes]]:
    reader = RangeReader(cluster, topic, wanted, follows=False, own_broker=broker)
    found: list[tuple[int, bytes, bytes]] = []
    try:
        while not reader.is_done:
            for batch in reader.read():
                columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
                found += zip(*columns, strict=True)
    finally:
        reader.close()
    assert reader.position >= min(wanted.end, found[-1][0] + 1 if found else 0)
    return found


def written(first: int, last: int) -> list[tuple[int, bytes, bytes]]:
    return [(at, str(at).encode(), VALUES[at].encode()) for at in range(first, last)]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_the_files_have_what_fetches_bring(
    broker: Broker, cluster: Cluster, fetches: list[int], codec: str
) -> None:
    topic = topic_of(broker, **{"compression.type": codec})
    assert len(list((broker.data_dir / f"{topic}-0").glob("*.log"))) > 3
    for first, last in ((0, COUNT), (1, COUNT - 1), (1234, 4321), (5990, 5991)):
        fetches.clear()
        assert read(cluster, topic, Range(0, first, last), own(broker)) == written(first, last)
        # One at the beginning, and a few for what is left.
        assert len(fetches) <= 4
    # And as before if the leader is another broker.
    fetches.clear()
    assert read(cluster, topic, Range(0, 0, COUNT), own(broker, node_id=1)) == written(0, COUNT)
    assert len(fetches) > 6


def test_transactions_are_left_to_the_broker(broker: Broker, cluster: Cluster) -> None:
    topic = topic_of(broker)
    settings: dict[str, Any] = {**broker.librdkafka_settings, "transactional.id": topic}
    producer = Producer(settings)
    producer.init_transactions(20)
    kept = []
    for number in range(40):
        producer.begin_transaction()
        for each in range(20):
            producer.produce(topic, VALUES[each] * 10, f"{number}")
        assert producer.flush(20) == 0
        if number % 3:
            producer.commit_transaction(20)
            kept.append(number)
        else:
            producer.abort_transaction(20)
    fill(broker, topic, [("last", "of all")])
    producer.begin_transaction()
    producer.produce(topic, "open")
    assert producer.flush(20) == 0
    fill(broker, topic, [("hidden", "behind the open transaction")])

    found = read(cluster, topic, Range(0, 0, 1 << 40), own(broker))

    assert found[:COUNT] == written(0, COUNT)
    keys = [key for _, key, _ in found[COUNT:]]
    assert keys == [str(number).encode() for number in kept for _ in range(20)] + [b"last"]
    producer.abort_transaction(20)


def test_nothing_is_read_that_the_broker_has_deleted(broker: Broker, cluster: Cluster) -> None:
    topic = topic_of(broker)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (done,) = admin.delete_records([TopicPartition(topic, 0, 2500)]).values()
    done.result(20)
    assert read(cluster, topic, Range(0, 0, COUNT), own(broker)) == written(2500, COUNT)


def test_what_files_lack_is_fetched(
    broker: Broker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are removed, replaced by others, or not whole while somebody reads."""
    topic = topic_of(broker)
    folder = broker.data_dir / f"{topic}-0"
    copy = broker.data_dir.parent / f"{topic}-copy-0"
    logs = sorted(file.name for file in folder.glob("*.log"))

    def remove_one(files: Path) -> None:
        (files / logs[1]).unlink()

    def cut_one(files: Path) -> None:
        content = (files / logs[1]).read_bytes()
        (files / logs[1]).write_bytes(content[: len(content) // 2 - 7])

    def damage_one(files: Path) -> None:
        content = bytearray((files / logs[1]).read_bytes())
        content[len(content) // 2 + 200] ^= 1
        (files / logs[1]).write_bytes(content)

    def damage_an_offset(files: Path) -> None:
        content = bytearray((files / logs[1]).read_bytes())
        # Of four batches of the same size, the third begins there.
        content[len(content) // 2] ^= 1
        (files / logs[1]).write_bytes(content)

    def fill_up_one(files: Path) -> None:
        with (files / logs[1]).open("ab") as file:
            file.write(bytes(5000))

    def swap_indexes(files: Path) -> None:
        indexes = sorted(file.name for file in files.glob("*.index"))
        contents = [(files / name).read_bytes() for name in reversed(indexes)]
        for name, content in zip(indexes, contents, strict=True):
            (files / name).write_bytes(content)

    def take_all(files: Path) -> None:
        shutil.rmtree(files)

    def give_it_to_another_topic(files: Path) -> None:
        (files / PARTITION_METADATA).write_bytes(encode_topic_id(uuid.uuid4()))

    try:
        for change in (
            remove_one, cut_one, damage_one, damage_an_offset, fill_up_one, swap_indexes,
            take_all, give_it_to_another_topic,
        ):  # fmt: skip
            shutil.copytree(folder, copy)
            change(copy)
            # The broker serves from its own, whole files.
            elsewhere = OwnBroker(0, str(copy.parent))
            with monkeypatch.context() as patch:
                patch.setattr(
                    "moldau.console.search.reading.SegmentFiles",
                    lambda _, topic_id: SegmentFiles(str(copy), topic_id),
                )
                for first in (0, 650, 2950):
                    found = read(cluster, topic, Range(0, first, COUNT), elsewhere)
                    assert found == written(first, COUNT), change.__name__
            shutil.rmtree(copy, ignore_errors=True)
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def test_an_index_that_fits_another_log_hides_nothing(broker: Broker, tmp_path: Path) -> None:
    """Compaction may replace both while somebody reads: batches are nearer to the start then."""
    topic = topic_of(broker)
    copy = tmp_path / "copy"
    shutil.copytree(broker.data_dir / f"{topic}-0", copy)
    topic_id = read_topic_id(str(copy / PARTITION_METADATA))
    assert topic_id is not None
    files = SegmentFiles(str(copy), topic_id)
    assert offsets_in(files, 650, COUNT) == list(range(650, COUNT))
    for file in copy.glob("*.index"):
        entries = list(INDEX_ENTRY.iter_unpack(file.read_bytes()))
        places = [position for _, position in entries[2:]]
        ends = [end for end, _ in entries[: len(places)]]
        file.write_bytes(b"".join(map(INDEX_ENTRY.pack, ends, places)))
    assert offsets_in(files, 650, COUNT) == []


def offsets_in(files: SegmentFiles, first: int, until: int, most: int = _MANY) -> Sequence[int]:
    decoder = Decoder(DECODED, "t", 0)
    offsets: list[int] = []
    for piece in files.read(first, until, most):
        # What follows may be something else by then.
        assert piece.next_offset <= until
        for batch in decoder.decode(piece, first, until):
            offsets += batch.column("offset").to_pylist()
    return offsets


def test_files_are_read_up_to_what_is_committed_and_no_further(broker: Broker) -> None:
    topic = topic_of(broker)
    folder = str(broker.data_dir / f"{topic}-0")
    topic_id = read_topic_id(f"{folder}/{PARTITION_METADATA}")
    assert topic_id is not None
    files = SegmentFiles(folder, topic_id)
    for until in (0, 1, 3000, 4567, COUNT):
        found = offsets_in(files, 0, until)
        assert found == list(range(len(found)))
        assert len(found) <= until
        # A fetch brings the rest of the piece.
        assert until - len(found) < 4000
    some = offsets_in(files, 0, COUNT, most=1)
    assert 0 < len(some) < COUNT
    assert offsets_in(SegmentFiles(folder, uuid.uuid4()), 0, COUNT) == []


def test_damage_is_reported_as_the_fetch_reports_it(broker: Broker, cluster: Cluster) -> None:
    topic = topic_of(broker)
    logs = sorted((broker.data_dir / f"{topic}-0").glob("*.log"))
    content = bytearray(logs[1].read_bytes())
    content[len(content) // 2 + 200] ^= 1
    with logs[1].open("r+b") as file:
        file.write(content)
    with pytest.raises(CorruptBatch, match="wrong CRC"):
        read(cluster, topic, Range(0, 0, COUNT), own(broker))
