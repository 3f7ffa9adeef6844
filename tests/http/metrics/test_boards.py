"""Boards for Kafka find what they ask for in a scrape of a broker that has some traffic."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from moldau import Queue
from moldau.client.pipelines.status import PipelineStatus
from moldau.http.thread import HttpThread
from moldau.spark.pipeline.run.metrics import PipelineMetrics
from moldau.spark.pipeline.run.progress import SinkProgress
from moldau.testing import Broker
from tests.http.scraping import Sample, Scrape

BOARD = Path(__file__).parents[3] / "deploy" / "grafana" / "moldau.json"

# What the boards of Strimzi ask for, which read the names of the JMX exporter by its usual rules,
# and of kafka_exporter. What they ask of Kubernetes itself is not a broker's to answer.
OF_THE_JMX_EXPORTER = """
    kafka_server_replicamanager_leadercount
    kafka_server_replicamanager_partitioncount
    kafka_server_replicamanager_underreplicatedpartitions
    kafka_server_replicamanager_underminisrpartitioncount
    kafka_server_replicamanager_offlinereplicacount
    kafka_server_replicamanager_isrshrinks_total
    kafka_server_replicamanager_isrexpands_total
    kafka_controller_kafkacontroller_activecontrollercount
    kafka_controller_kafkacontroller_offlinepartitionscount
    kafka_controller_kafkacontroller_globaltopiccount
    kafka_controller_kafkacontroller_globalpartitioncount
    kafka_controller_kafkacontroller_preferredreplicaimbalancecount
    kafka_controller_controllerstats_uncleanleaderelections_total
    kafka_cluster_partition_atminisr{topic="orders",partition="0"}
    kafka_cluster_partition_underminisr{topic="orders",partition="0"}
    kafka_cluster_partition_underreplicated{topic="orders",partition="0"}
    kafka_cluster_partition_replicascount{topic="orders",partition="0"}
    kafka_cluster_partition_insyncreplicascount{topic="orders",partition="0"}
    kafka_server_brokertopicmetrics_bytesin_total{topic="orders"}
    kafka_server_brokertopicmetrics_bytesout_total{topic="orders"}
    kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}
    kafka_server_brokertopicmetrics_totalproducerequests_total{topic="orders"}
    kafka_server_brokertopicmetrics_failedproducerequests_total{topic="orders"}
    kafka_server_brokertopicmetrics_totalfetchrequests_total{topic="orders"}
    kafka_server_brokertopicmetrics_failedfetchrequests_total{topic="orders"}
    kafka_server_brokertopicmetrics_replicationbytesin_total{topic="orders"}
    kafka_server_brokertopicmetrics_replicationbytesout_total{topic="orders"}
    kafka_network_socketserver_networkprocessoravgidle_percent
    kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent
    kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"}
    kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.999"}
    kafka_network_requestmetrics_totaltimems_count{request="Produce"}
    kafka_network_requestmetrics_requests_total{request="Metadata"}
    kafka_server_kafkaserver_linux_disk_write_bytes
    kafka_server_kafkaserver_linux_disk_read_bytes
    kafka_server_kafkaserver_brokerstate
    kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"}
    kafka_log_log_size{topic="orders",partition="0"}
    kafka_log_log_logstartoffset{topic="orders",partition="0"}
    kafka_log_log_logendoffset{topic="orders",partition="0"}
    kafka_log_log_numlogsegments{topic="orders",partition="0"}
    kafka_log_logflushstats_logflushrateandtimems{quantile="0.99"}
    kafka_log_logmanager_offlinelogdirectorycount
    kafka_coordinator_group_groupmetadatamanager_numgroups
    process_open_fds
    process_cpu_seconds_total
    jvm_memory_used_bytes{area="heap"}
    jvm_gc_collection_seconds_sum
    jvm_gc_collection_seconds_count
    jvm_threads_current
"""
OF_KAFKA_EXPORTER = """
    kafka_brokers
    kafka_broker_info{id="0"}
    kafka_topic_partitions{topic="orders"}
    kafka_topic_partition_current_offset{topic="orders",partition="1"}
    kafka_topic_partition_oldest_offset{topic="orders",partition="1"}
    kafka_topic_partition_leader{topic="orders",partition="1"}
    kafka_topic_partition_replicas{topic="orders",partition="1"}
    kafka_topic_partition_in_sync_replica{topic="orders",partition="1"}
    kafka_topic_partition_leader_is_preferred{topic="orders",partition="1"}
    kafka_topic_partition_under_replicated_partition{topic="orders",partition="1"}
    kafka_consumergroup_current_offset{consumergroup="billing",topic="orders",partition="1"}
    kafka_consumergroup_current_offset_sum{consumergroup="billing",topic="orders"}
    kafka_consumergroup_lag{consumergroup="billing",topic="orders",partition="1"}
    kafka_consumergroup_lag_sum{consumergroup="billing",topic="orders"}
    kafka_consumergroup_members{consumergroup="billing"}
"""
SELECTOR = re.compile(r"\b((?:kafka|moldau|process|jvm)_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"')


@pytest.fixture(scope="module")
def scrape() -> Iterator[Scrape]:
    with Broker(http_listen="127.0.0.1:0") as broker:
        broker.create_topic("orders", partitions=2)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(20):
            producer.produce("orders", b"tea", partition=number % 2)
        assert producer.flush(60) == 0
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        read = 0
        while read < 20:
            read += len(consumer.consume(20, 20))
        consumer.commit(asynchronous=False)
        transactional = Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": "payments"}
        )
        transactional.init_transactions(60)
        with Queue("orders", group="workers", bootstrap=broker.bootstrap, start="earliest") as jobs:
            assert jobs.take(60) is not None
        found = Scrape(broker.http_url)
        found.samples += pipeline_samples()
        yield found
        consumer.close()


def pipeline_samples() -> list[Sample]:
    """What a pipeline shows, which Prometheus scrapes beside the brokers."""
    metrics = PipelineMetrics()
    metrics.tell(PipelineStatus(name="totals", run="1", state="running"))
    metrics.update("totals", SinkProgress("raw", batch=1, batch_s=0.5, rows=20, written=19, lag=0))
    with HttpThread("127.0.0.1", 0, metrics.routes()) as server:
        return Scrape(server.url).samples


def expressions(part: Any) -> Iterator[str]:
    """Every expression in a board, those of its variables included."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key in ("expr", "definition") and isinstance(value, str):
                yield value
            else:
                yield from expressions(value)
    elif isinstance(part, list):
        for each in part:
            yield from expressions(each)


def matches(sample: Sample, matchers: list[tuple[str, str, str]]) -> bool:
    """Whether Prometheus would select the sample; a variable of a board stands for anything."""
    for label, operator, wanted in matchers:
        has = sample.labels.get(label, "")
        if operator == "=":
            is_match = has == wanted
        elif operator == "!=":
            is_match = has != wanted
        else:
            pattern = re.sub(r"\$\w+", ".*", wanted)
            is_match = (re.fullmatch(pattern, has) is not None) == (operator == "=~")
        if not is_match:
            return False
    return True


def find(scrape: Scrape, expression: str) -> None:
    """Fails unless every selector in the expression finds a series."""
    selectors = SELECTOR.findall(expression)
    assert selectors, expression
    for name, inner in selectors:
        matchers = MATCHER.findall(inner)
        found = [each for each in scrape.find(name) if matches(each, matchers)]
        assert found, f"no series for {name}{{{inner}}} in {expression}"


EXPRESSIONS = sorted(set(expressions(json.loads(BOARD.read_text("utf-8")))))


def test_the_board_of_the_repository_has_expressions() -> None:
    assert len(EXPRESSIONS) > 35
    names = {name for each in EXPRESSIONS for name, _ in SELECTOR.findall(each)}
    assert {name.split("_")[0] for name in names} == {"kafka", "moldau", "process"}


def test_every_expression_of_our_board_finds_a_series(scrape: Scrape) -> None:
    for expression in EXPRESSIONS:
        find(scrape, expression)


def test_every_series_of_the_usual_boards_is_there(scrape: Scrape) -> None:
    for selector in (OF_THE_JMX_EXPORTER + OF_KAFKA_EXPORTER).split():
        find(scrape, selector)


def test_a_selector_that_matches_nothing_is_found_out(scrape: Scrape) -> None:
    for wrong in ("kafka_nothing", 'kafka_topic_partitions{topic="nothing"}'):
        with pytest.raises(AssertionError, match="no series"):
            find(scrape, wrong)
