"""Deliberate differences from Kafka: each reason once, with all its places."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from conformance.values import Difference

_ABSENT = "'(absent)'"
_FAILED_INSIDE = "'unknown_server_error'"
_SILENT = "'(no answer)'"


@dataclass(frozen=True, slots=True)
class Place:
    """Differences in a group's case and step, at a path, with these values.

    All are patterns as for file names; a value is matched by its repr.
    """

    group: str = "*"
    case: str = "*"
    step: str = "*"
    path: str = "*"
    kafka: str = "*"
    moldau: str = "*"

    def has(self, group: str, case: str, step: str, found: Difference) -> bool:
        return (
            fnmatchcase(group, self.group)
            and fnmatchcase(case, self.case)
            and fnmatchcase(step, self.step)
            and fnmatchcase(found.path, _literal(self.path))
            and _matches(found.kafka, self.kafka)
            and _matches(found.moldau, self.moldau)
        )


@dataclass(frozen=True, slots=True)
class Deliberate:
    """A difference that is meant, and where it shows."""

    reason: str
    places: tuple[Place, ...]

    def place(self, group: str, case: str, step: str, found: Difference) -> Place | None:
        """Which of the places a difference is in."""
        return next((each for each in self.places if each.has(group, case, step, found)), None)


def _literal(path: str) -> str:
    """Paths hold brackets, which are no character classes here."""
    return path.replace("[", "[[]")


def _matches(value: Any, pattern: str) -> bool:
    return pattern == "*" or fnmatchcase(repr(value), pattern.replace("[", "[[]"))


def _default(*paths: str, **more: str) -> tuple[Place, ...]:
    """Places among the settings of the broker."""
    return tuple(Place("Defaults", "of_the_broker", path=path, **more) for path in paths)


def _ranges(*keys: int, **more: str) -> tuple[Place, ...]:
    """Places among the ranges of versions."""
    return tuple(Place("Versions", "ranges", path=f"key {key}", **more) for key in keys)


DELIBERATE: tuple[Deliberate, ...] = (
    # Answers
    Deliberate(
        "A share group's start is written with the acknowledgement that moves it; Kafka writes it "
        "with the next one.",
        (
            Place(
                group="DescribeShareGroupOffsets",
                step="of these",
                path="groups[*].start_offset",
                kafka="0",
                moldau="2",
            ),
        ),
    ),
    Deliberate(
        "What a share session gives back when it ends can be acquired at once; in Kafka once that "
        "is written down.",
        tuple(
            Place(
                group="ShareFetch",
                step="an unknown partition",
                path=f"responses[*].{field}",
                kafka="[]",
            )
            for field in ("records.batches", "acquired_records")
        ),
    ),
    Deliberate(
        "The epoch of a share group rises when its members or their topics change; Kafka's rises "
        "once more when the state of a partition begins.",
        (
            Place("Access", "share_group_describe", path="groups[*].group_epoch"),
            Place("Access", "share_group_describe", path="groups[*].assignment_epoch"),
        ),
    ),
    Deliberate(
        "An acquire mode that there is not is an invalid request; it is an error inside of Kafka.",
        (
            Place(
                group="ShareFetch",
                step="another mode",
                path="error_code",
                kafka=_FAILED_INSIDE,
                moldau="'invalid_request'",
            ),
        ),
    ),
    Deliberate(
        "Elements with names come in the order of the request or of their numbers; in Kafka in "
        "that of a hash map, which differs from run to run, and what it does not know comes last.",
        (Place(path="* (order)"),),
    ),
    Deliberate(
        "Where Kafka gives an error code alone, Moldau adds a sentence.",
        tuple(
            Place(group, path="*error_message", kafka="None")
            for group in (
                *("Produce", "CreatePartitions", "IncrementalAlterConfigs"),
                "AlterPartitionReassignments",
            )
        ),
    ),
    Deliberate(
        "Where Kafka fails inside, with UNKNOWN_SERVER_ERROR or without an answer, Moldau says "
        "what is wrong; or goes on where that is harmless: a limit below zero counts as zero, an "
        "unknown isolation level as none, a protocol named twice once.",
        (
            Place("Produce", step="null", kafka=_SILENT),
            Place("Produce", step="an unknown codec", kafka=_FAILED_INSIDE),
            # Of versions below 7 Kafka looks at the codec before it looks for the log.
            Place("Produce", step="an unknown codec", path="*.log_start_offset", kafka="-1"),
            Place("Fetch", "limits", "negative*"),
            Place("Fetch", step="an isolation nobody knows"),
            Place("ListOffsets", step="an isolation nobody knows"),
            Place("Metadata", step="zero and no name"),
            Place("DescribeTopicPartitions", step="empty name"),
            Place("AlterConfigs", step="a resource twice", kafka=_SILENT),
            Place("IncrementalAlterConfigs", step="an unknown operation", kafka=_FAILED_INSIDE),
            Place("JoinGroup", step="the same protocol twice*", kafka=_SILENT),
            Place("AddPartitionsToTxn", step="none at all", kafka=_SILENT),
        ),
    ),
    Deliberate(
        "A partition named twice in one request is done twice and answered twice; Kafka drops all "
        "but one of them silently.",
        (
            Place("Produce", "the_same_partition_twice"),
            Place("Fetch", step="the * twice"),
            Place("DeleteRecords", step="twice"),
        ),
    ),
    Deliberate(
        "Bad input costs its sender an error or the connection: bytes behind the batch of a "
        "request, an append time that a producer claims, an array of -2 elements, a text that is "
        "no UTF-8. Kafka takes what it can make of them.",
        (
            Place("Produce", step="with rubbish behind"),
            Place("Produce", step="append time claimed by the producer"),
            Place("Frames", "headers", "an array of -2"),
            Place("Frames", "headers", "text that is no UTF-8"),
        ),
    ),
    # Records
    Deliberate(
        "Produce checks batches and does not walk records, but for the keys in a compacted topic: "
        "a bad timestamp names the batch, not the record in it, and a payload that is not what its "
        "codec bit says is found by its reader.",
        (
            Place("Produce", "timestamps*", path="*.record_errors", moldau="[]"),
            Place("Produce", step="a codec it is not compressed with"),
        ),
    ),
    Deliberate(
        "A batch that was written before is answered without an append time, as the protocol "
        "says of topics that keep the producers' times; Kafka gives the producer's.",
        (Place("Produce", "sequences", path="*.log_append_time", moldau="None"),),
    ),
    Deliberate(
        "Fetch sends whole batches from the file; Kafka cuts the last one, and clients throw that "
        "part away.",
        (Place("Fetch", path="*.records.partial", moldau="0"),),
    ),
    # Topics
    Deliberate(
        "A topic that is created on demand is there in the same answer; Kafka has the client ask "
        "again. Before version 4 a request cannot say that it does not want the topic.",
        (
            Place("Metadata", "creation_*"),
            Place("Metadata", "topics_by_name", "*unknown", "*.error_code", moldau="'none'"),
            Place("Metadata", "topics_by_name", "*unknown", "*.partitions[*]", kafka=_ABSENT),
            Place("Metadata", "topics_by_name", "longest"),
        ),
    ),
    Deliberate(
        "Small segments are allowed, as in Kafka before 4.1 (KIP-1030): tests of retention and "
        "compaction need them.",
        (Place("CreateTopics", "configs", "a small segment"),),
    ),
    # Settings
    Deliberate(
        "Settings of what Moldau does not have (tiered storage, throttles by topic, Kerberos, "
        "KRaft, purgatories, thread pools and so on) are not listed; those of its own are.",
        (
            Place(path="*moldau.*", kafka=_ABSENT),
            Place(path="*remote.*", moldau=_ABSENT),
            Place(path="*local.retention.*", moldau=_ABSENT),
            Place(path="*.replication.throttled.replicas", moldau=_ABSENT),
            *_default("*", kafka="{'value': *", moldau=_ABSENT),
            *_default("*", kafka=_ABSENT, moldau="{'value': *"),
        ),
    ),
    Deliberate(
        "Kafka's feature of eligible leader replicas pins min.insync.replicas for the cluster.",
        (
            Place(path="*min.insync.replicas.config_source"),
            Place(path="*min.insync.replicas.synonyms"),
            Place("Java tools", "kafka_topics", "describe", kafka="*min.insync.replicas=1,*"),
        ),
    ),
    Deliberate(
        "A broker needs no settings at all: it has an id, a folder and an address, its own of "
        "course, and takes as many replicas for commits as there are brokers.",
        _default("node.id.synonyms", "log.dirs.*", "*listeners.*")
        + _default("offsets.topic.replication.factor.*"),
    ),
    Deliberate(
        "Defaults that suit a laptop: no wait before a first rebalance, a bound on what waits to "
        "be handled, followers that are back soon.",
        _default(
            "group.initial.rebalance.delay.ms.synonyms*",
            "queued.max.request.bytes.*",
            "replica.fetch.backoff.ms.*",
        ),
    ),
    Deliberate(
        "What can be changed while the broker runs: when idle connections end, but not how many "
        "connections a follower fetches with.",
        _default("connections.max.idle.ms.read_only", "num.replica.fetchers.read_only"),
    ),
    Deliberate(
        "Security is off until something is set: no mechanism, no kind of keystore, no authorizer "
        "is named, and what is not set is described as such. What a client may send before it has "
        "authenticated is less.",
        _default(
            "authorizer.class.name.*",
            "inter.broker.listener.name.*",
            "max.connections.per.ip.overrides.*",
            "sasl.enabled.mechanisms.*",
            "sasl.mechanism.inter.broker.protocol.*",
            "sasl.oauthbearer.expected.audience.*",
            "sasl.server.max.receive.size.*",
            "ssl.keystore.type.*",
            "ssl.truststore.type.*",
        ),
    ),
    Deliberate(
        "Which listeners there are and how they are protected is set before the start; a renewed "
        "certificate is noticed in its file.",
        _default("listener.security.protocol.map.*", "ssl.*.read_only"),
    ),
    Deliberate(
        "Limits of transactions can be changed while the broker runs, two-phase commit is on, and "
        "the state topic is as large as the cluster allows.",
        _default(
            "transaction.max.timeout.ms.read_only",
            "transaction.state.log.replication.factor.*",
            "transaction.two.phase.commit.enable.*",
            "transactional.id.expiration.ms.read_only",
        ),
    ),
    Deliberate(
        "A setting that does not exist is refused, for brokers as for topics; Kafka keeps it.",
        (Place("IncrementalAlterConfigs", step="an unknown broker setting"),),
    ),
    # What is offered
    Deliberate(
        "Not offered: delegation tokens, loggers, client metrics (KIP-714), the groups of "
        "KIP-1071 and their settings, KRaft and its features.",
        (
            *_ranges(38, 39, 40, 41, moldau=_ABSENT),
            *_ranges(57, 64, 80, 81, moldau=_ABSENT),
            *_ranges(88, 89, moldau=_ABSENT),
            Place("Versions", "features"),
            Place("DescribeQuorum", "the_quorum", moldau="'unsupported_version'"),
            Place("Java tools", "kafka_metadata_quorum", moldau="1"),
            Place("ListConfigResources", "resources", "types ??", kafka="*[8, '1']*"),
            Place("ListConfigResources", "resources", "types ?8?", kafka="[[8, '1']]"),
            Place("DescribeConfigs", step="an unknown group"),
            Place("DescribeConfigs", step="an unknown client subscription"),
        ),
    ),
    Deliberate(
        "In the older dialect an abort right after InitProducerId aborts nothing, and that is no "
        "error: librdkafka gives up when it is refused (librdkafka #4849).",
        (
            Place("EndTxn", "an_abort_of_nothing", moldau="'none'"),
            Place("EndTxn", "before_the_first_partition", "abort, v3, itself", moldau="0"),
        ),
    ),
    Deliberate(
        "A commit that is asked for again after an abort, which may be that of a time-out, is told "
        "that it was fenced, as Kafka 4.4 does (KAFKA-20785): INVALID_TXN_STATE ends a client.",
        (
            Place("EndTxn", "after_an_abort_of_the_*_dialect", "commit, v5, *", "[0]*", "48", "90"),
            Place("EndTxn", "after_a_time_out", "commit, v5, itself", "[0]*", "48", "90"),
        ),
    ),
    Deliberate(
        "A group is gone with the last that was kept of it; in Kafka with the next look for "
        "offsets that have expired.",
        tuple(
            Place("TxnOffsetCommit", "a_group_of_staged_offsets_alone", f"{what} after its abort")
            for what in ("described", "listed")
        ),
    ),
    Deliberate(
        "A producer that is fenced cannot abort the transaction of the one that fenced it by "
        "beginning anew; in Kafka it is refused once it has done so.",
        tuple(
            Place("EndTxn", "while_a_transaction_is_open", f"begin anew, {who}", path="[1]")
            for who in ("an earlier epoch", "a later epoch")
        ),
    ),
    Deliberate(
        "A write with the sequences of a transaction that has ended is refused. Kafka takes it for "
        "a repetition, and acknowledges what it does not write; librdkafka gives sequences out "
        "again after it aborted a transaction whose last answer was lost.",
        (
            Place(
                "Produce",
                "transactional_writes",
                "sequences of the ended transaction",
            ),
        ),
    ),
    Deliberate(
        "A transactional id without a transaction is not listed as one that takes long; in Kafka "
        "it began at -1.",
        (Place("ListTransactions", step="long ones"),),
    ),
    Deliberate(
        "Offered: two-phase commit (KIP-939), which Kafka holds back.",
        (*_ranges(22), Place("Java tools", "kafka_broker_api_versions", "INIT_PRODUCER_ID")),
    ),
    Deliberate(
        "A prepared transaction is kept for whoever begins with two phases (KIP-939); Kafka has "
        "the field and no answer to it yet.",
        (Place("Two-phase commit", "kept_*", "kept"),),
    ),
    Deliberate(
        "Not offered: log folders that take no more partitions (KIP-1066).",
        _ranges(35),
    ),
)


def explanation(
    group: str, case: str, step: str, found: Difference
) -> tuple[Deliberate, Place] | None:
    """The first reason that there is for a difference."""
    for each in DELIBERATE:
        place = each.place(group, case, step, found)
        if place is not None:
            return each, place
    return None
