"""The blocking client against a real broker, and against things that are none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from moldau.peer.cluster import EARLIEST, LATEST, Cluster
from moldau.peer.errors import OffsetOutOfRange, TopicRecreated, UnknownTopic, Unreachable
from moldau.peer.fetcher import FetchSettings, PartitionFetcher
from moldau.peer.retries import PeerSettings
from moldau.peer.view import parse_bootstrap
from moldau.records.batch import batches
from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.asking import Asker
from tests.peer.peers import listener, read_frame, taken

QUICK = PeerSettings(
    retry_within_s=10, reach_within_s=0.5, request_timeout_s=5, unknown_topic_within_s=0.2
)


@pytest.fixture
def cluster(moldau_broker: Broker) -> Iterator[Cluster]:
    with Cluster([(moldau_broker.host, moldau_broker.port)], QUICK) as cluster:
        yield cluster


def produce(broker: Broker, topic: str, count: int, first_ms: int = 1000) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=first_ms + number)
    assert producer.flush(60) == 0


def last_offset(records: memoryview) -> int:
    return max(header.last_offset for _, header in batches(records))


def test_topics_have_their_ids_and_leaders(moldau_broker: Broker, cluster: Cluster) -> None:
    moldau_broker.create_topic("orders", partitions=3)
    topic = cluster.metadata(["orders"]).topics["orders"]
    assert topic.id is not None
    assert sorted(topic.leaders) == [0, 1, 2]
    assert {leader.node_id for leader in topic.leaders.values()} == {0}
    assert "orders" in cluster.metadata().topics


def room(settings: PeerSettings, broker: Broker) -> int:
    """What the kernel holds of what a broker sends before it is read."""
    with Cluster([(broker.host, broker.port)], settings) as cluster:
        connected = cluster.some_broker()._socket
        return int(connected.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))


def test_a_broker_on_this_machine_sends_no_more_at_once_than_is_wished(
    moldau_broker: Broker,
) -> None:
    little = replace(QUICK, local_receive_bytes=64 << 10)
    # Linux doubles it for its own use.
    assert room(little, moldau_broker) <= 128 << 10 < room(QUICK, moldau_broker)


def test_an_unknown_topic_is_not_created_by_asking(cluster: Cluster) -> None:
    with pytest.raises(UnknownTopic, match="'nowhere' does not exist"):
        cluster.metadata(["nowhere"]).topics["nowhere"].check()
    assert "nowhere" not in cluster.metadata().topics


def test_offsets_are_found_by_time_and_at_both_ends(
    moldau_broker: Broker, cluster: Cluster
) -> None:
    moldau_broker.create_topic("orders", partitions=2)
    produce(moldau_broker, "orders", 10, first_ms=1000)
    key, other = ("orders", 0), ("orders", 1)
    ends = cluster.list_offsets({key: LATEST, other: LATEST})
    assert (ends[key].offset, ends[other].offset) == (10, 0)
    assert cluster.list_offsets({key: EARLIEST})[key].offset == 0
    assert cluster.list_offsets({key: 1004})[key].offset == 4
    assert cluster.list_offsets({key: 2000})[key].offset == -1
    assert cluster.list_offsets({}) == {}


def test_fetching_goes_on_after_a_restart_of_the_broker(
    moldau_broker: Broker, cluster: Cluster
) -> None:
    moldau_broker.create_topic("orders")
    produce(moldau_broker, "orders", 10)
    fetcher = PartitionFetcher(cluster, "orders", 0)
    assert last_offset(taken(fetcher.fetch(0))) == 9
    fetcher.ask_ahead(5)
    moldau_broker.stop()
    restart = threading.Timer(0.3, moldau_broker.start)
    restart.start()
    assert last_offset(taken(fetcher.fetch(5))) == 9
    restart.join()
    fetcher.close()


def test_a_fetch_asked_ahead_of_another_place_is_not_mistaken(
    moldau_broker: Broker, cluster: Cluster
) -> None:
    moldau_broker.create_topic("orders")
    produce(moldau_broker, "orders", 10)
    produce(moldau_broker, "orders", 10)
    fetcher = PartitionFetcher(cluster, "orders", 0, settings=FetchSettings(max_bytes=1))
    fetcher.fetch(0)
    fetcher.ask_ahead(0)
    (_, header), *_ = batches(taken(fetcher.fetch(19)))
    assert header.base_offset <= 19 <= header.last_offset


def test_an_offset_that_retention_took_comes_with_what_is_there(
    moldau_broker: Broker, cluster: Cluster
) -> None:
    moldau_broker.create_topic("orders")
    produce(moldau_broker, "orders", 10)
    with Asker(moldau_broker) as asker:
        partitions = [{"partition_index": 0, "offset": 6}]
        asker.ask(Api.DELETE_RECORDS, topics=[{"name": "orders", "partitions": partitions}])
    fetcher = PartitionFetcher(cluster, "orders", 0)
    with pytest.raises(OffsetOutOfRange) as caught:
        fetcher.fetch(2)
    gap = caught.value
    assert (gap.offset, gap.log_start, gap.log_end) == (2, 6, 10)
    with pytest.raises(OffsetOutOfRange):
        fetcher.fetch(11)
    assert last_offset(taken(fetcher.fetch(6))) == 9


def test_a_topic_that_was_created_again_is_not_taken_for_the_old_one(
    moldau_broker: Broker, cluster: Cluster
) -> None:
    moldau_broker.create_topic("orders")
    produce(moldau_broker, "orders", 3)
    old_id = cluster.metadata(["orders"]).topics["orders"].id
    fetcher = PartitionFetcher(cluster, "orders", 0, old_id)
    assert last_offset(taken(fetcher.fetch(0))) == 2
    with Asker(moldau_broker) as asker:
        asker.ask(Api.DELETE_TOPICS, topics=[{"name": "orders"}])
    moldau_broker.create_topic("orders")
    produce(moldau_broker, "orders", 5)
    with pytest.raises(TopicRecreated):
        fetcher.fetch(1)


def test_a_topic_that_is_deleted_while_it_is_read_is_soon_unknown(
    moldau_broker: Broker, cluster: Cluster
) -> None:
    moldau_broker.create_topic("orders")
    produce(moldau_broker, "orders", 3)
    fetcher = PartitionFetcher(cluster, "orders", 0)
    fetcher.fetch(0)
    with Asker(moldau_broker) as asker:
        asker.ask(Api.DELETE_TOPICS, topics=[{"name": "orders"}])
    with pytest.raises(UnknownTopic):
        fetcher.fetch(1)


def test_a_broker_that_stays_away_is_waited_for_no_longer_than_is_said(
    moldau_broker: Broker,
) -> None:
    moldau_broker.create_topic("orders")
    produce(moldau_broker, "orders", 3)
    with Cluster([(moldau_broker.host, moldau_broker.port)], PeerSettings(retry_within_s=0.4)) as c:
        fetcher = PartitionFetcher(c, "orders", 0)
        fetcher.fetch(0)
        moldau_broker.stop()
        with pytest.raises(Unreachable, match=r"within 0\.4 s; tried 127"):
            fetcher.fetch(1)


def test_nobody_there_is_an_error_within_seconds_that_says_what_was_tried() -> None:
    with pytest.raises(Unreachable, match=r"tried 127\.0\.0\.1:1 \(Connection refused\)"):
        Cluster([("127.0.0.1", 1)], QUICK).metadata()


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9,
        b"\x7f\xff\xff\xff",
        b"\0\0\0\4\0\0\0\1",
        b"\0" * 99,
    ],
    ids=["hangs up", "web server", "huge claim", "no body", "zeros"],
)
def test_a_peer_that_is_no_broker_is_reported_as_such(reply: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        read_frame(connection)
        connection.sendall(reply)

    with listener(serve) as address, pytest.raises(Unreachable):
        Cluster([address], QUICK).metadata()


def test_a_silent_peer_costs_no_more_than_the_timeout() -> None:
    settings = PeerSettings(request_timeout_s=0.3, reach_within_s=0.2)

    def serve(connection: socket.socket) -> None:
        read_frame(connection)
        connection.recv(1)

    with listener(serve) as address, pytest.raises(Unreachable, match="timed out"):
        Cluster([address], settings).metadata()


def test_one_dead_bootstrap_address_does_not_matter(moldau_broker: Broker) -> None:
    addresses = [("127.0.0.1", 1), (moldau_broker.host, moldau_broker.port)]
    with Cluster(addresses, QUICK) as cluster:
        assert cluster.metadata().nodes


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "a:1,b", "host:99999"])
def test_a_wrong_address_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        parse_bootstrap(text)


def test_addresses_may_be_of_version_six() -> None:
    assert parse_bootstrap("[::1]:9092, host:1") == [("::1", 9092), ("host", 1)]
