"""The picture of a cluster at one moment: brokers, topics, groups, and what is wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from moldau.cli.top.sample import Sample

_TRAFFIC = "kafka_server_brokertopicmetrics_"
_MANAGER = "kafka_server_replicamanager_"
_CONTROLLER = "kafka_controller_kafkacontroller_"
# A group that is further behind is worth a word.
_LONG_LAG_S = 60.0


@dataclass(frozen=True, slots=True)
class BrokerRow:
    broker: str
    url: str
    leads: int
    holds: int
    messages_s: float
    bytes_in_s: float
    bytes_out_s: float
    requests_s: float
    produce_p99_ms: float | None
    fetch_p50_ms: float | None
    cpu_share: float
    memory_bytes: int
    connections: int
    is_controller: bool


@dataclass(frozen=True, slots=True)
class TopicRow:
    topic: str
    partitions: int
    messages_s: float
    bytes_in_s: float
    bytes_out_s: float


@dataclass(frozen=True, slots=True)
class GroupRow:
    group: str
    topic: str
    members: int
    lag: int
    lag_s: float | None


@dataclass(slots=True)
class Picture:
    """All that is shown."""

    brokers: list[BrokerRow] = field(default_factory=list)
    topics: list[TopicRow] = field(default_factory=list)
    groups: list[GroupRow] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def picture_of(
    now: Mapping[str, Sample], before: Mapping[str, Sample], problems: list[str]
) -> Picture:
    """Put the samples of all brokers together; by address, as `before`."""
    picture = Picture(problems=list(problems))
    pairs = [(url, sample, before.get(url)) for url, sample in now.items()]
    picture.brokers = sorted(
        (_broker(url, sample, then) for url, sample, then in pairs), key=lambda each: each.broker
    )
    picture.topics = _topics(pairs)
    picture.groups = _groups(now)
    picture.problems += _problems(pairs, picture.groups)
    return picture


Pairs = list[tuple[str, Sample, Sample | None]]


def _broker(url: str, now: Sample, then: Sample | None) -> BrokerRow:
    return BrokerRow(
        now.info("moldau_build_info").get("broker", "?"),
        url.rpartition("//")[2],
        int(now.value(f"{_MANAGER}leadercount")),
        int(now.value(f"{_MANAGER}partitioncount")),
        now.rate(then, f"{_TRAFFIC}messagesin_total"),
        now.rate(then, f"{_TRAFFIC}bytesin_total"),
        now.rate(then, f"{_TRAFFIC}bytesout_total"),
        now.total_rate(then, "kafka_network_requestmetrics_requests_total"),
        now.quantile_ms(then, "Produce", 0.99),
        now.quantile_ms(then, "Fetch", 0.5),
        now.rate(then, "process_cpu_seconds_total"),
        int(now.value("process_resident_memory_bytes")),
        int(
            sum(
                count for _, count in now.all("kafka_server_socket_server_metrics_connection_count")
            )
        ),
        bool(now.value(f"{_CONTROLLER}activecontrollercount")),
    )


def _topics(pairs: Pairs) -> list[TopicRow]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    for _, now, then in pairs:
        for labels, partitions in now.all("kafka_topic_partitions"):
            sums[labels["topic"]][0] += partitions
        for place, name in ((1, "messagesin"), (2, "bytesin"), (3, "bytesout")):
            full = f"{_TRAFFIC}{name}_total"
            for labels, _ in now.all(full):
                if "topic" in labels:
                    sums[labels["topic"]][place] += now.rate(then, full, **labels)
    rows = [TopicRow(name, int(each[0]), *each[1:]) for name, each in sums.items()]
    return sorted(rows, key=lambda each: (-each.bytes_in_s - each.bytes_out_s, each.topic))


def _groups(now: Mapping[str, Sample]) -> list[GroupRow]:
    rows = _share_groups(now)
    for sample in now.values():
        members = {
            labels["consumergroup"]: int(count)
            for labels, count in sample.all("kafka_consumergroup_members")
        }
        seconds = {
            (labels["consumergroup"], labels["topic"]): value
            for labels, value in sample.all("moldau_consumergroup_lag_seconds_max")
        }
        for labels, lag in sample.all("kafka_consumergroup_lag_sum"):
            group, topic = labels["consumergroup"], labels["topic"]
            late_s = seconds.get((group, topic))
            rows.append(GroupRow(group, topic, members.get(group, 0), int(lag), late_s))
    return sorted(rows, key=lambda each: (-each.lag, each.group, each.topic))


def _share_groups(now: Mapping[str, Sample]) -> list[GroupRow]:
    """Return share groups, whose states any number of brokers keep."""
    members: dict[str, int] = {}
    lags: dict[tuple[str, str], int] = defaultdict(int)
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for sample in now.values():
        for labels, count in sample.all("kafka_consumergroup_members"):
            members[labels["consumergroup"]] = int(count)
        for labels, lag in sample.all("moldau_sharegroup_lag"):
            lags[labels["group"], labels["topic"]] += int(lag)
        for labels, late_s in sample.all("moldau_sharegroup_lag_seconds_max"):
            place = labels["group"], labels["topic"]
            seconds[place] = max(seconds[place], late_s)
    return [
        GroupRow(group, topic, members.get(group, 0), lag, seconds.get((group, topic)))
        for (group, topic), lag in lags.items()
    ]


def _problems(pairs: Pairs, groups: list[GroupRow]) -> list[str]:
    found: list[str] = []
    controllers = 0
    for _, now, then in pairs:
        name = f"broker {now.info('moldau_build_info').get('broker', '?')}"
        controllers += int(now.value(f"{_CONTROLLER}activecontrollercount"))
        if now.value("moldau_fenced"):
            found.append(f"{name} is out of touch with the cluster and leads nothing")
        for metric, words in (
            (f"{_CONTROLLER}offlinepartitionscount", "partitions have no leader"),
            (f"{_MANAGER}underminisrpartitioncount", "partitions refuse writes with acks=all"),
            (
                f"{_MANAGER}underreplicatedpartitions",
                "partitions have replicas that are not in sync",
            ),
            (f"{_MANAGER}offlinereplicacount", "logs are offline"),
        ):
            if count := int(now.value(metric)):
                found.append(f"{name}: {count} {words}")
        stalled_s = now.rate(then, "moldau_loop_stall_seconds_total")
        if stalled_s > 0.01:
            found.append(f"{name}: its event loop is stalled {stalled_s:.0%} of the time")
        failed = now.rate(then, f"{_TRAFFIC}failedproducerequests_total")
        if failed > 0:
            found.append(f"{name} refuses {failed:,.1f} writes per second")
    if pairs and controllers != 1:
        found.append(f"{controllers} of the brokers shown are the controller, not 1")
    for row in groups:
        if row.lag_s is not None and row.lag_s > _LONG_LAG_S:
            found.append(
                f"group {row.group} is {row.lag_s:,.0f} s behind in {row.topic}"
                + ("" if row.members else ", and has no members")
            )
    return found
