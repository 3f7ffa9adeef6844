"""Where Moldau answers otherwise than Kafka on purpose, and why."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from conformance.values import Difference


@dataclass(frozen=True, slots=True)
class Deliberate:
    """Differences that are meant: those in a group's case and step, at a path, with these values.

    All but `reason` are patterns as for file names; a value is matched by its repr.
    """

    reason: str
    group: str = "*"
    case: str = "*"
    step: str = "*"
    path: str = "*"
    kafka: str = "*"
    moldau: str = "*"

    def explains(self, group: str, case: str, step: str, found: Difference) -> bool:
        return (
            fnmatchcase(group, self.group)
            and fnmatchcase(case, self.case)
            and fnmatchcase(step, self.step)
            and fnmatchcase(found.path, _literal(self.path))
            and _matches(found.kafka, self.kafka)
            and _matches(found.moldau, self.moldau)
        )


def _literal(path: str) -> str:
    """Paths hold brackets, which are no character classes here."""
    return path.replace("[", "[[]")


def _matches(value: Any, pattern: str) -> bool:
    return pattern == "*" or fnmatchcase(repr(value), pattern.replace("[", "[[]"))


DELIBERATE: tuple[Deliberate, ...] = (
    # Shape of answers
    Deliberate(
        "Kafka lists topics, partitions, groups and members in the order of a hash map, which "
        "differs from run to run; Moldau keeps the order of the request or of the numbers.",
        path="* (order)",
    ),
    Deliberate(
        "Where Kafka gives an error code alone, Moldau adds a sentence.",
        path="*error_message",
        kafka="None",
    ),
    Deliberate(
        "A topic that is named without partitions is answered without partitions; Kafka leaves "
        "it out.",
        step="no partitions",
        kafka="'(absent)'",
    ),
    # Produce
    Deliberate(
        "A partition named twice in one Produce request takes both batches; Kafka silently drops "
        "one of them.",
        group="Produce",
        case="the_same_partition_twice",
    ),
    Deliberate(
        "A batch that repeats an earlier one is answered without an append time, which it has not "
        "on a topic that keeps the producers' times.",
        group="Produce",
        case="sequences",
        path="*log_append_time*",
    ),
    Deliberate(
        "There are no transactions, and a producer is told so for good; Kafka's coordinator is "
        "only not found, which is tried again until the producer's patience ends.",
        group="Produce",
        case="transactional_batches",
        path="*error_code",
    ),
    Deliberate(
        "Null instead of records is refused; Kafka fails inside and never answers.",
        group="Produce",
        step="null",
        kafka="'(no answer)'",
    ),
    Deliberate(
        "Batches are checked, records are not walked: an error names the "
        "batch, not the record in it.",
        group="Produce",
        path="*.record_errors",
        moldau="[]",
    ),
    Deliberate(
        "Batches are checked, records are not walked: a payload that is not "
        "what its codec bit says is found by whoever reads it.",
        group="Produce",
        case="bad_batches",
        step="a codec it is not compressed with",
    ),
    Deliberate(
        "Bytes behind the one batch of a request are refused; Kafka drops them silently if they "
        "are fewer than a header.",
        group="Produce",
        case="bad_batches",
        step="with rubbish behind",
    ),
    Deliberate(
        "Append time is the broker's to set: a producer that claims it is refused; Kafka takes the "
        "batch.",
        group="Produce",
        case="bad_batches",
        step="append time claimed by the producer",
    ),
    Deliberate(
        "The two differences above leave Moldau's partition with fewer batches from there on.",
        group="Produce",
        case="bad_batches",
        path="*.base_offset",
    ),
    Deliberate(
        "An unknown codec is an invalid record; Kafka fails inside with UNKNOWN_SERVER_ERROR.",
        group="Produce",
        step="an unknown codec",
        kafka="'unknown_server_error'",
    ),
    # Fetch
    Deliberate(
        "An answer ends on the boundary of a batch (sendfile of whole batches); Kafka cuts the "
        "last one, and clients throw that part away.",
        group="Fetch",
        path="*.records.partial",
        moldau="0",
    ),
    Deliberate(
        "A partition named twice in one Fetch request is answered twice; Kafka answers the last.",
        group="Fetch",
        step="the * twice",
    ),
    Deliberate(
        "A limit below zero counts as zero; Kafka fails inside with UNKNOWN_SERVER_ERROR.",
        group="Fetch",
        case="limits",
        step="negative*",
    ),
    Deliberate(
        "An isolation level that nobody knows reads what is not committed, too; Kafka fails inside "
        "with UNKNOWN_SERVER_ERROR.",
        group="Fetch",
        step="an isolation nobody knows",
    ),
    Deliberate(
        "A session without partitions is not worth a slot in the cache.",
        group="Fetch",
        step="a session of nothing",
        path="session_id",
    ),
    # Other requests about topics
    Deliberate(
        "A partition named twice is done twice and answered twice; Kafka answers the last.",
        group="DeleteRecords",
        step="twice",
    ),
    Deliberate(
        "A topic that is created on demand is there in the same answer; Kafka says "
        "UNKNOWN_TOPIC_OR_PARTITION and has the client ask again.",
        group="Metadata",
        case="creation_*",
    ),
    Deliberate(
        "As above: requests before version 4 cannot say that they do not want the topic.",
        group="Metadata",
        case="topics_by_name",
        step="*unknown",
        moldau="'none'",
    ),
    Deliberate(
        "As above: requests before version 4 cannot say that they do not want the topic.",
        group="Metadata",
        case="topics_by_name",
        step="longest",
    ),
    Deliberate(
        "As above: requests before version 4 cannot say that they do not want the topic.",
        group="Metadata",
        case="topics_by_name",
        step="*unknown",
        path="topics[*].partitions[*]",
        kafka="'(absent)'",
    ),
    Deliberate(
        "Neither a name nor an id is an invalid topic; Kafka fails inside with "
        "UNKNOWN_SERVER_ERROR.",
        group="Metadata",
        step="zero and no name",
    ),
    Deliberate(
        "An empty name is an invalid topic; Kafka fails inside with UNKNOWN_SERVER_ERROR.",
        group="DescribeTopicPartitions",
        step="empty name",
    ),
    Deliberate(
        "Small segments are allowed, as in Kafka before 4.1 (KIP-1030): tests of retention and "
        "compaction need them.",
        group="CreateTopics",
        case="configs",
        step="a small segment",
    ),
    # Settings
    Deliberate(
        "There is no tiered storage.",
        path="*remote.*",
        moldau="'(absent)'",
    ),
    Deliberate("There is no tiered storage.", path="*local.retention.*", moldau="'(absent)'"),
    Deliberate(
        "Replication is throttled by a broker's rate for what is being moved, not by lists of "
        "replicas per topic.",
        path="*.replication.throttled.replicas",
        moldau="'(absent)'",
    ),
    Deliberate(
        "Kafka's feature of eligible leader replicas pins min.insync.replicas for the cluster.",
        path="*min.insync.replicas.config_source",
    ),
    Deliberate(
        "Kafka's feature of eligible leader replicas pins min.insync.replicas for the cluster.",
        path="*min.insync.replicas.synonyms",
    ),
    Deliberate(
        "Kafka's feature of eligible leader replicas pins min.insync.replicas for the cluster.",
        group="Java tools",
        case="kafka_topics",
        step="describe",
        kafka="*min.insync.replicas=1,*",
    ),
    Deliberate(
        "A default names the setting that it comes from (log.retention.hours), and the value in "
        "force stands under the name that wins; Kafka shows nothing for both.",
        path="*.synonyms*",
        kafka="'(absent)'",
    ),
    Deliberate(
        "A default names the setting that it comes from (log.retention.hours), and the value in "
        "force stands under the name that wins; Kafka shows nothing for both.",
        path="*log.*.ms.value",
        kafka="None",
    ),
    Deliberate(
        "A default names the setting that it comes from (log.retention.hours), and the value in "
        "force stands under the name that wins; Kafka shows nothing for both.",
        group="Java tools",
        case="kafka_configs",
        step="describe*",
        moldau="*log.retention.hours=168*",
    ),
    Deliberate(
        "A setting that does not exist is refused, for brokers as for topics; Kafka keeps it.",
        group="IncrementalAlterConfigs",
        step="an unknown broker setting",
    ),
    Deliberate(
        "An operation that does not exist is an invalid request; Kafka fails inside with "
        "UNKNOWN_SERVER_ERROR.",
        group="IncrementalAlterConfigs",
        step="an unknown operation",
    ),
    Deliberate(
        "A resource named twice is refused; Kafka fails inside and never answers.",
        group="AlterConfigs",
        step="a resource twice",
        kafka="'(no answer)'",
    ),
    Deliberate(
        "Group settings belong to the new group protocol (KIP-848), which is not offered.",
        group="DescribeConfigs",
        step="an unknown group",
    ),
    Deliberate(
        "There are no client metrics (KIP-714): nobody is asked for telemetry.",
        group="DescribeConfigs",
        step="an unknown client subscription",
    ),
    Deliberate(
        "Settings of what Moldau does not have (SASL, TLS, KRaft, quotas, purgatories, thread "
        "pools and so on) are not listed.",
        group="Defaults",
        case="of_the_broker",
        moldau="'(absent)'",
    ),
    Deliberate(
        "Settings of Moldau's own.",
        group="Defaults",
        case="of_the_broker",
        kafka="'(absent)'",
    ),
    Deliberate(
        "Addresses and folders of the two brokers.",
        group="Defaults",
        case="of_the_broker",
        path="*listeners.*",
    ),
    Deliberate(
        "Addresses and folders of the two brokers.",
        group="Defaults",
        case="of_the_broker",
        path="log.dirs.*",
    ),
    Deliberate(
        "Every setting has a default.", group="Defaults", case="of_the_broker", path="node.id.*"
    ),
    Deliberate(
        "No rack is an empty text.", group="Defaults", case="of_the_broker", path="broker.rack.*"
    ),
    Deliberate(
        "Defaults that suit a laptop: no wait before a first rebalance, "
        "and a bound on what waits to be handled.",
        group="Defaults",
        case="of_the_broker",
        path="group.initial.rebalance.delay.ms.*",
    ),
    Deliberate(
        "Defaults that suit a laptop: no wait before a first rebalance, "
        "and a bound on what waits to be handled.",
        group="Defaults",
        case="of_the_broker",
        path="queued.max.request.bytes.*",
    ),
    Deliberate(
        "Can be changed while the broker runs; in Kafka it cannot.",
        group="Defaults",
        case="of_the_broker",
        path="connections.max.idle.ms.read_only",
    ),
    Deliberate(
        "Kafka's is set for the yardstick, which is one broker; Moldau takes as many as there are.",
        group="Defaults",
        case="of_the_broker",
        path="offsets.topic.replication.factor.*",
    ),
    *(
        Deliberate(
            "A follower comes back soon, and what is not there is an empty text; how many "
            "connections it fetches with is settled at its start.",
            group="Defaults",
            case="of_the_broker",
            path=path,
        )
        for path in (
            "replica.fetch.backoff.ms.*",
            "replica.selector.class.*",
            "num.replica.fetchers.read_only",
        )
    ),
    # Groups
    Deliberate(
        "A protocol named twice counts once; Kafka fails inside and never answers.",
        group="JoinGroup",
        step="the same protocol twice*",
        kafka="'(no answer)'",
    ),
    # Versions and frames
    Deliberate(
        "A client need not give its name and version (KIP-511): nothing depends on them.",
        group="ApiVersions",
        case="who_asks",
        moldau="'none'",
    ),
    Deliberate(
        "Features (KIP-584) are KRaft's way of agreeing on versions; there is no KRaft here.",
        group="Versions",
        case="features",
    ),
    *(
        Deliberate(
            f"Not offered: {what}.",
            group="Versions",
            case="ranges",
            path=f"key {key}",
            moldau="'(absent)'",
        )
        for what, keys in {
            "SASL": (17, 36),
            "access control": (29, 30, 31),
            "moving a replica between log folders": (34,),
            "delegation tokens": (38, 39, 40, 41),
            "client quotas and SCRAM credentials": (48, 49, 50, 51),
            "what KRaft's controllers and brokers say to each other": (55, 57, 61, 64, 80, 81),
            "the new consumer groups (KIP-848)": (68, 69),
            "client metrics (KIP-714) and their list of configs": (74,),
            "share groups (KIP-932)": (*range(76, 80), *range(83, 88), *range(90, 93)),
            "streams groups (KIP-1071)": (88, 89),
        }.items()
        for key in keys
    ),
    *(
        Deliberate(
            "Transactions are not there yet.",
            group="Versions",
            case="ranges",
            path=f"key {key}",
            moldau="'(absent)'",
        )
        for key in (24, 25, 26, 27, 28, 65, 66)
    ),
    Deliberate(
        "Versions that Kafka 4.1 holds back as unstable and later releases offer.",
        group="Versions",
        case="ranges",
        path="key ?",
    ),
    Deliberate(
        "Versions that Kafka 4.1 holds back as unstable and later releases offer.",
        group="Versions",
        case="ranges",
        path="key 22",
    ),
    Deliberate(
        "Versions that Kafka 4.1 holds back as unstable and later releases offer.",
        group="Versions",
        case="ranges",
        path="key 35",
    ),
    Deliberate(
        "What is not laid out as its schema says costs the connection: an array of -2 elements, a "
        "text that is no UTF-8. Kafka reads on with what it makes of it.",
        group="Frames",
        case="headers",
        step="an array of -2",
    ),
    Deliberate(
        "What is not laid out as its schema says costs the connection: an array of -2 elements, a "
        "text that is no UTF-8. Kafka reads on with what it makes of it.",
        group="Frames",
        case="headers",
        step="text that is no UTF-8",
    ),
    # Tools
    Deliberate(
        "log.cleaner.threads is no setting here: compaction has one process of its own.",
        group="Java tools",
        case="kafka_configs",
        step="a broker*",
    ),
)
