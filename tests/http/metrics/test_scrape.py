"""Scrapes: what one tells of a broker's traffic."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.broker.net.outputs.page_cache import is_warm
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.api.cluster.sasl import BASE, authenticate, connect, handshake
from tests.broker.api.sharing.member import (
    ACCEPT,
    REJECT,
    RELEASE,
    Member,
    initialize,
    partition_of,
)
from tests.broker.net.test_throttling import limit
from tests.broker.wire_client import (
    Client,
    append_open,
    fresh_name,
    inside,
    make_batch,
    now_ms,
    produce_values,
)
from tests.http.scraping import Scrape

TRAFFIC = "kafka_server_brokertopicmetrics_"
LATE = "kafka_server_replicamanager_partitionswithlatetransactionscount"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http_listen="127.0.0.1:0", auto_create_topics_enable=False) as broker:
        yield broker


def requests(scrape: Scrape, api: str) -> float:
    return scrape.value("kafka_network_requestmetrics_requests_total", request=api)


def test_a_scrape_is_read_by_the_parsers_of_both_formats(broker: Broker) -> None:
    plain = Scrape(broker.http_url)
    assert plain.content_type == "text/plain; version=0.0.4; charset=utf-8"
    modern = Scrape(broker.http_url, is_open=True)
    assert modern.content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert modern.text.endswith("# EOF\n")
    assert {each.name for each in plain.samples} == {each.name for each in modern.samples}


def test_every_request_of_a_pipelining_client_is_counted_once(broker: Broker) -> None:
    with Client(broker) as client:
        topic = client.create(fresh_name())
        batch = make_batch(b"x")
        before = Scrape(broker.http_url)
        for _ in range(150):
            client.send_produce(topic, batch, acks=1)
        for _ in range(150):
            client.receive()
        after = Scrape(broker.http_url)
    assert requests(after, "Produce") - requests(before, "Produce") == 150
    for scrape in (before, after):
        buckets = list(scrape.find("moldau_request_seconds_bucket", api="Produce"))
        counts = [each.value for each in buckets]
        assert counts == sorted(counts)
        assert counts[-1:] == [requests(scrape, "Produce")] if buckets else True
    assert after.value(f"{TRAFFIC}messagesin_total", topic=topic) == 150
    assert after.value(f"{TRAFFIC}bytesin_total", topic=topic) == 150 * len(batch)
    assert after.value(f"{TRAFFIC}totalproducerequests_total", topic=topic) == 150
    assert after.value("kafka_log_log_size", topic=topic, partition="0") == 150 * len(batch)


def test_answers_that_wait_and_answers_that_are_never_sent_are_counted(broker: Broker) -> None:
    with Client(broker) as client, Client(broker) as reader:
        topic = client.create(fresh_name())
        before = Scrape(broker.http_url)
        reader.send_fetch({topic: [{"partition": 0, "fetch_offset": 0}]}, max_wait=20_000)
        client.send_produce(topic, make_batch(b"unanswered"), acks=0)
        reader.receive()
        after = Scrape(broker.http_url)
    assert requests(after, "Fetch") - requests(before, "Fetch") == 1
    assert requests(after, "Produce") - requests(before, "Produce") == 1
    sent = after.value(f"{TRAFFIC}bytesout_total", topic=topic)
    assert sent == after.value(f"{TRAFFIC}bytesin_total", topic=topic) > 0


def test_errors_are_counted_by_request_code_and_topic(broker: Broker) -> None:
    with Client(broker) as client:
        topic = client.create(fresh_name())
        before = Scrape(broker.http_url)
        broken = bytearray(make_batch(b"bad"))
        broken[-1] ^= 1
        assert client.produce(topic, broken).error_code
        assert client.fetch(topic, 0, partition=7, max_wait=0).error_code
        after = Scrape(broker.http_url)
    assert after.value(f"{TRAFFIC}failedproducerequests_total", topic=topic) == 1
    assert after.value(f"{TRAFFIC}failedfetchrequests_total", topic=topic) == 1
    errors = "kafka_network_requestmetrics_errors_total"
    corrupt = {"request": "Produce", "error": "CORRUPT_MESSAGE"}
    assert after.value(errors, **corrupt) - before.value(errors, **corrupt) == 1


def test_topics_that_do_not_exist_take_no_memory(broker: Broker) -> None:
    with Client(broker) as client:
        before = Scrape(broker.http_url)
        for number in range(300):
            client.send_produce(f"nothing-{number}", make_batch(b"x"))
        for _ in range(300):
            client.receive()
        after = Scrape(broker.http_url)
    failed = f"{TRAFFIC}failedproducerequests_total"
    assert after.value(failed) - before.value(failed) == 300
    assert "nothing-" not in after.text


def test_what_was_written_to_a_deleted_topic_stays_in_the_total(broker: Broker) -> None:
    with Client(broker) as client:
        topic = client.create(fresh_name())
        client.produce(topic, make_batch(b"x"))
        before = Scrape(broker.http_url)
        client.ask(Api.DELETE_TOPICS, topics=[{"name": topic}])
        until(lambda: topic not in Scrape(broker.http_url).text, "the topic to go")
        after = Scrape(broker.http_url)
        later = Scrape(broker.http_url)
    name = f"{TRAFFIC}messagesin_total"
    assert before.value(name, topic=topic) == 1
    assert after.value(name) == later.value(name) == before.value(name)


def test_lag_is_told_in_messages_and_in_seconds(broker: Broker) -> None:
    with Client(broker) as client:
        topic = client.create(fresh_name(), partitions=2)
    group = 'a "group" \\ of\nlines'
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    long_ago = 1_600_000_000_000
    for number in range(10):
        producer.produce(topic, b"old", partition=0, timestamp=long_ago + number)
        assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    committed = [TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 0)]
    consumer.commit(offsets=committed, asynchronous=False)
    scrape = Scrape(broker.http_url)
    consumer.close()
    where = {"consumergroup": group, "topic": topic}
    assert scrape.value("kafka_consumergroup_current_offset", **where, partition="0") == 4
    assert scrape.value("kafka_consumergroup_lag", **where, partition="0") == 6
    assert scrape.value("kafka_consumergroup_lag", **where, partition="1") == 0
    assert scrape.value("kafka_consumergroup_lag_sum", **where) == 6
    seconds = scrape.value("moldau_consumergroup_lag_seconds", **where, partition="0")
    started = scrape.value("process_start_time_seconds")
    assert seconds >= started - (long_ago + 4) / 1000
    idle = list(scrape.find("moldau_consumergroup_lag_seconds", **where, partition="1"))
    assert [each.value for each in idle] == [0.0]
    assert scrape.value("moldau_consumergroup_lag_seconds_max", **where) == seconds


def test_share_groups_tell_what_is_in_flight_redelivered_dead_and_left(broker: Broker) -> None:
    group, kafka = fresh_name("workers"), "kafka_server_sharepartitionmetrics_"
    with Client(broker) as client:
        topic = client.create(fresh_name())
        for value in (b"a", b"b", b"c", b"d"):
            client.produce(topic, make_batch(value))
        topic_id = client.topic_id(topic)
        initialize(client, group, topic_id)
    where = {"group": group, "topic": topic, "partition": "0"}
    with Member(broker, group, topic_id) as member:
        until(lambda: member.take(max_records=3, share_acquire_mode=1), "something is given")
        said = {0: [(0, 0, REJECT), (1, 1, RELEASE), (2, 2, ACCEPT)]}
        assert not partition_of(member.acknowledge(said)).error_code
        assert member.take(max_records=1, share_acquire_mode=1) == [(1, 1, 2)]
        scrape = Scrape(broker.http_url)
    assert scrape.value(f"{kafka}inflightmessagecount", **where) == 1
    assert scrape.value(f"{kafka}acquisitionlocktimeout_total", **where) == 0
    assert scrape.value("moldau_sharegroup_redelivered_total", **where) == 1
    assert scrape.value("moldau_sharegroup_dead_total", **where) == 1
    assert scrape.value("moldau_sharegroup_waiting", **where) == 0
    # One in flight and one that nobody was given yet.
    assert scrape.value("moldau_sharegroup_lag", **where) == 2


def test_the_lag_of_share_groups_is_told_though_nobody_reads(broker: Broker) -> None:
    group, long_ago = fresh_name("workers"), 1_600_000_000_000
    with Client(broker) as client:
        topic = client.create(fresh_name(), partitions=2)
        topic_id = client.topic_id(topic)
        for index in (0, 1):
            initialize(client, group, topic_id, index=index)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for number in range(3):
        producer.produce(topic, b"old", partition=0, timestamp=long_ago + 1000 * number)
        assert producer.flush(60) == 0
    with Member(broker, group, topic_id) as member:
        until(lambda: member.take(max_records=1, share_acquire_mode=1), "something is given")
        assert not partition_of(member.acknowledge({0: [(0, 0, ACCEPT)]})).error_code
    until(lambda: inside(broker, lambda server: not server.shares.report(group)), "nobody reads")
    scrape = Scrape(broker.http_url)
    where = {"group": group, "topic": topic}
    assert scrape.value("moldau_sharegroup_lag", **where, partition="0") == 2
    assert scrape.value("moldau_sharegroup_lag", **where, partition="1") == 0
    seconds = scrape.value("moldau_sharegroup_lag_seconds", **where, partition="0")
    started = scrape.value("process_start_time_seconds")
    assert seconds >= started - (long_ago + 1000) / 1000
    idle = list(scrape.find("moldau_sharegroup_lag_seconds", **where, partition="1"))
    assert [each.value for each in idle] == [0.0]
    assert scrape.value("moldau_sharegroup_lag_seconds_max", **where) == seconds
    totals = Scrape(broker.http_url, per_partition=False)
    assert totals.value("moldau_sharegroup_lag", **where) == 2
    assert totals.value("moldau_sharegroup_lag_seconds_max", **where) >= seconds


def test_flushes_have_their_series(broker: Broker) -> None:
    with Client(broker) as client:
        topic = client.create(fresh_name(), flush_messages="1")
        client.produce(topic, make_batch(b"x"))
    scrape = Scrape(broker.http_url)
    assert scrape.value("moldau_flush_seconds_count") >= 1
    assert scrape.value("moldau_flush_lag_messages") == 0


def test_a_read_that_waits_for_the_disk_is_counted(broker: Broker) -> None:
    with Client(broker) as client:
        topic = client.create(fresh_name())
        for _ in range(2):
            client.produce(topic, make_batch(os.urandom(500_000)))
        (file,) = (broker.data_dir / f"{topic}-0").glob("*.log")
        fd = os.open(file, os.O_RDONLY)
        try:
            size = os.fstat(fd).st_size
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if is_warm(fd, 0, size):
                pytest.skip(f"the page cache keeps what lies in {broker.data_dir}")
        finally:
            os.close(fd)
        before = Scrape(broker.http_url).value("moldau_cold_reads_total")
        answer = client.fetch(topic, 0, partition_max_bytes=1 << 20, max_bytes=1 << 20)
        assert len(answer.records) > 500_000
        after = Scrape(broker.http_url).value("moldau_cold_reads_total")
        assert after > before

        def is_warm_by_now() -> bool:
            known = Scrape(broker.http_url).value("moldau_cold_reads_total")
            client.fetch(topic, 0, partition_max_bytes=1 << 20, max_bytes=1 << 20)
            return Scrape(broker.http_url).value("moldau_cold_reads_total") == known

        until(is_warm_by_now, "the cache to have it")


def test_the_time_that_clients_are_told_to_wait_is_counted() -> None:
    with Broker(http_listen="127.0.0.1:0") as broker, Client(broker) as client:
        topic = client.create(fresh_name())
        assert Scrape(broker.http_url).value("moldau_throttled_seconds_total") == 0
        limit(client, producer_byte_rate=20_000)
        waits_s = 0.0
        for _ in range(3):
            data = produce_values({topic: {0: make_batch(bytes(100_000))}})
            waits_s += client.ask(Api.PRODUCE, 9, **data).throttle_time.total_seconds()
            if waits_s:
                break
        assert waits_s > 0
        counted = Scrape(broker.http_url).value("moldau_throttled_seconds_total")
        assert counted == pytest.approx(waits_s)


def test_series_of_single_partitions_can_be_left_out() -> None:
    settings = {"http.listen": "127.0.0.1:0", "metrics.per.partition": "false"}
    with Broker(settings) as broker:
        broker.create_topic("orders", partitions=3)
        scrape = Scrape(broker.http_url)
    assert 'partition="' not in scrape.text
    assert scrape.value("kafka_server_replicamanager_leadercount") == 3
    assert scrape.value("kafka_topic_partitions", topic="orders") == 3


def test_counts_begin_again_with_a_restart_and_old_messages_are_not_new(tmp_path: Path) -> None:
    with Broker(http_listen="127.0.0.1:0", data_dir=tmp_path) as broker:
        broker.create_topic("orders")
        with Client(broker) as client:
            client.produce("orders", make_batch(b"x"))
        assert Scrape(broker.http_url).value(f"{TRAFFIC}messagesin_total", topic="orders") == 1
        broker.stop()
        broker.start()
        scrape = Scrape(broker.http_url)
        assert scrape.value(f"{TRAFFIC}messagesin_total", topic="orders") == 0
        assert scrape.value("kafka_log_log_logendoffset", topic="orders", partition="0") == 1


def test_a_broker_without_http_counts_nothing(moldau_session_broker: Broker) -> None:
    server = moldau_session_broker._server
    assert server is not None
    assert server.connections.exit.metrics is None


def test_a_scrape_of_a_client_that_goes_away_does_not_end_for_others(broker: Broker) -> None:
    host, _, port = broker.http_url.removeprefix("http://").rpartition(":")
    for _ in range(5):
        with socket.create_connection((host, int(port))) as gone:
            gone.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert Scrape(broker.http_url).value("kafka_brokers") == 1


def test_answers_of_different_kinds_in_one_turn_are_each_counted(broker: Broker) -> None:
    with Client(broker) as client:
        before = Scrape(broker.http_url)
        frames = b""
        for _ in range(20):
            frames += client.frame(Api.API_VERSIONS, 0)
            frames += client.frame(Api.FIND_COORDINATOR, 1, key="g", key_type=0)
        client.send_bytes(frames)
        for _ in range(40):
            client.receive()
        after = Scrape(broker.http_url)
    assert requests(after, "ApiVersions") - requests(before, "ApiVersions") == 20
    assert requests(after, "FindCoordinator") - requests(before, "FindCoordinator") == 20


def test_open_transactions_and_the_partitions_that_they_hold_are_told(broker: Broker) -> None:
    with Client(broker) as client:
        topic = client.create(fresh_name())
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": fresh_name("transactions")}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    assert producer.flush(60) == 0
    during = Scrape(broker.http_url)
    producer.commit_transaction(60)
    after = Scrape(broker.http_url)
    assert during.value("moldau_transactions", state="Ongoing") == 1
    assert during.value("moldau_partitions_in_transaction") == 1
    assert after.value("moldau_transactions", state="Ongoing") == 0
    assert after.value("moldau_partitions_in_transaction") == 0
    assert [each.value for each in during.find(LATE)] == [0]


def test_a_hanging_transaction_is_told_until_it_is_ended(broker: Broker) -> None:
    """It was written to longer ago than any transaction may last, and no coordinator knows it."""
    with Client(broker) as client:
        topic = client.create(fresh_name())
        longest_ms = 15 * 60_000 + 5 * 60_000
        append_open(broker, topic, b"x", now_ms() - longest_ms - 60_000)
        during = Scrape(broker.http_url)
        assert [each.value for each in during.find(LATE)] == [1]
        assert during.value("moldau_partitions_in_transaction") == 1
        marker = {
            "producer_id": 9,
            "producer_epoch": 0,
            "transaction_result": False,
            "topics": [{"name": topic, "partition_indexes": [0]}],
            "coordinator_epoch": -1,
        }
        client.ask(Api.WRITE_TXN_MARKERS, 1, markers=[marker])
        after = Scrape(broker.http_url)
        assert [each.value for each in after.find(LATE)] == [0]
        assert after.value("moldau_partitions_in_transaction") == 0


def test_logins_that_fail_are_counted() -> None:
    failed = {"request": "SaslAuthenticate", "error": "SASL_AUTHENTICATION_FAILED"}
    errors = "kafka_network_requestmetrics_errors_total"
    with Broker(BASE | {"http.listen": "127.0.0.1:0"}) as broker:
        with connect(broker) as client:
            handshake(client, "PLAIN")
            answer = authenticate(client, b"\0alice\0a guess")
            assert answer.error_code == Error.SASL_AUTHENTICATION_FAILED
        until(lambda: Scrape(broker.http_url).value(errors, **failed) == 1, "the count")
