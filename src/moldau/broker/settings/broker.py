"""The settings of a broker."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from moldau.broker.settings import security
from moldau.broker.settings.http import HTTP
from moldau.broker.settings.log_lines import LogLineSettings
from moldau.log.config import LogConfig, topic_defaults
from moldau.settings import INT_MAX, definitions, setting, unknown


class BrokerSettings(LogLineSettings):
    """A broker's own settings under Kafka's names, and the defaults that it gives to topics.

    `given` holds the texts that somebody set, so that the config APIs can tell them from defaults.
    """

    node_id: int = setting(
        "node.id", 0, "This broker's id in its cluster.", minimum=0, maximum=INT_MAX
    )
    broker_rack: str = setting(
        "broker.rack", "", "This broker's rack. Replicas of a partition are spread over racks."
    )
    log_dirs: str = setting(
        "log.dirs", "moldau-data", "The data folder: logs, indexes, checkpoints, metadata."
    )
    num_partitions: int = setting(
        "num.partitions",
        1,
        "The number of partitions of a topic that is created without a number.",
        minimum=1,
        maximum=INT_MAX,
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        1,
        "The replication factor of a topic that is created without a factor.",
        minimum=1,
        maximum=32767,
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        True,
        "Whether a topic is created when a client first asks for it.",
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable", True, "Whether topics can be deleted."
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        100 << 20,
        "The largest request. A connection that announces a larger request is closed.",
        minimum=1,
        maximum=INT_MAX,
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        256 << 20,
        "The most memory for requests that are being received, over all connections. When it is "
        "used up, connections are not read until there is room. A single request always fits. "
        "Clients that have not authenticated yet share a separate sixteenth of this.",
        minimum=1 << 20,
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        600_000,
        "How long a connection may be idle before it is closed.",
        minimum=1,
        dynamic=True,
    )
    max_connections: int = setting(
        "max.connections",
        INT_MAX,
        "The most connections that may be open at once. A further connection replaces one that "
        "has not authenticated yet, and is closed if there is none. A broker's connection then "
        "replaces an idle client's, if brokers have a separate listener.",
        minimum=0,
        maximum=INT_MAX,
        dynamic=True,
    )
    max_broker_partitions: int = setting(
        "max.broker.partitions",
        200_000,
        "The most partitions that one broker may hold, replicas included. A topic that would "
        "exceed this is refused (KIP-578). The controller's value applies.",
        minimum=1,
        maximum=INT_MAX,
        dynamic=True,
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        55 << 20,
        "The most bytes in one Fetch response. A larger first batch is still sent.",
        minimum=1024,
        maximum=INT_MAX,
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "The most incremental fetch sessions to keep.",
        minimum=0,
        maximum=INT_MAX,
    )
    zookeeper_connect: str = setting(
        "zookeeper.connect",
        "",
        "The ZooKeeper ensemble of the cluster, HOST:PORT,...[/CHROOT]. If empty, "
        "the broker runs alone.",
    )
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms",
        6_000,
        "How long a broker may be out of touch with ZooKeeper before it counts as "
        "dead and stops leading.",
        minimum=500,
        maximum=INT_MAX,
    )
    zookeeper_connection_timeout_ms: int = setting(
        "zookeeper.connection.timeout.ms",
        15_000,
        "How long a starting broker tries to reach ZooKeeper.",
        minimum=1,
        maximum=INT_MAX,
    )
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable",
        True,
        "Whether a broker hands its partitions over before it stops.",
    )
    controlled_shutdown_timeout_ms: int = setting(
        "controlled.shutdown.timeout.ms",
        10_000,
        "How long a stopping broker waits for others to take over its partitions.",
        minimum=0,
        maximum=INT_MAX,
    )
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable",
        True,
        "Whether leadership returns to the preferred replicas automatically.",
    )
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often the controller checks whether leadership should return to the "
        "preferred replicas.",
        minimum=1,
    )
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        30_000,
        "How long a follower may lag before it is out of sync.",
        minimum=1,
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes",
        1 << 20,
        "The most bytes of one partition in a follower's Fetch. A larger first batch "
        "is still sent.",
        minimum=0,
        maximum=INT_MAX,
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes",
        10 << 20,
        "The most bytes in the response to a follower's Fetch.",
        minimum=0,
        maximum=INT_MAX,
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms",
        500,
        "How long a follower's Fetch waits for new records.",
        minimum=1,
        maximum=INT_MAX,
    )
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms",
        100,
        "How long a follower waits before it retries a leader or partition that failed.",
        minimum=0,
        maximum=INT_MAX,
    )
    num_replica_fetchers: int = setting(
        "num.replica.fetchers",
        1,
        "The number of connections that a follower opens to each leader.",
        minimum=1,
        maximum=64,
    )
    follower_replication_throttled_rate: int = setting(
        "follower.replication.throttled.rate",
        (1 << 63) - 1,
        "The most bytes per second that this broker copies of partitions that are moving to it.",
        minimum=1,
        dynamic=True,
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        5_000,
        "How often high watermarks are saved.",
        minimum=1,
    )
    replica_selector_class: str = setting(
        "replica.selector.class",
        "",
        "RackAwareReplicaSelector lets consumers read from a replica in their own "
        "rack. If empty, they read from the leader.",
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        300_000,
        "How often to look for segments to delete.",
        minimum=1,
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        "How often logs are flushed and their recovery points saved.",
        minimum=1,
        maximum=INT_MAX,
    )
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable", True, "Whether topics with cleanup.policy=compact are compacted."
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        15_000,
        "How long the cleaner waits when no log needs compaction.",
        minimum=0,
        dynamic=True,
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        128 << 20,
        "The memory for the keys of one round of compaction. Keys that do not fit "
        "wait for the next round.",
        minimum=1024,
        dynamic=True,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        sys.float_info.max,
        "The most bytes per second that the cleaner reads and writes.",
        minimum=1,
        dynamic=True,
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        86_400_000,
        "How long the sequence numbers of an idle producer are kept.",
        minimum=1,
        maximum=INT_MAX,
        dynamic=True,
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        6_000,
        "The shortest session timeout that a group member may ask for.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        1_800_000,
        "The longest session timeout that a group member may ask for.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        0,
        "How long the first member of an empty group waits for others to join.",
        minimum=0,
        maximum=INT_MAX,
    )
    group_max_size: int = setting(
        "group.max.size",
        INT_MAX,
        "The most members that a group may have.",
        minimum=1,
        maximum=INT_MAX,
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        4096,
        "The most bytes of metadata that may be committed with an offset.",
        minimum=0,
        maximum=32767,
    )
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        5_000,
        "How long a commit waits for all in-sync replicas.",
        minimum=1,
        maximum=INT_MAX,
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        10_080,
        "How long the offsets of a group without members are kept.",
        minimum=1,
        maximum=INT_MAX,
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        600_000,
        "How often to look for expired offsets.",
        minimum=1,
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        50,
        "The number of partitions of __consumer_offsets when it is created.",
        minimum=1,
        maximum=INT_MAX,
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        3,
        "The replication factor of __consumer_offsets; fewer if there are fewer brokers.",
        minimum=1,
        maximum=32767,
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        100 << 20,
        "The segment size of __consumer_offsets.",
        minimum=14,
        maximum=INT_MAX,
    )
    max_open_files: int = setting(
        "max.open.files",
        4096,
        "The most segment files that are open at once.",
        minimum=16,
        maximum=INT_MAX,
    )
    shutdown_drain_ms: int = setting(
        "shutdown.drain.ms",
        2_000,
        "How long a stopping broker waits for its last responses to be sent.",
        minimum=0,
        maximum=INT_MAX,
    )

    topic_defaults: LogConfig = LogConfig()
    # Among them passwords.
    given: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return Path(self.log_dirs)

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> BrokerSettings:
        """Return the settings that these texts mean; InvalidSetting names the first wrong one."""
        values = {_ALIASES.get(key, key): text for key, text in values.items()}
        own = definitions(cls)
        of_topics = {name for each in definitions(LogConfig).values() for name, _ in each.synonyms}
        parsed = {}
        for key, text in values.items():
            if key in own:
                parsed[own[key].attribute] = own[key].parse(text)
            elif key not in of_topics and not key.startswith(security.PREFIX):
                raise unknown(key, [*own, *of_topics, *_ALIASES])
        settings = replace(
            cls(), **parsed, topic_defaults=topic_defaults(values), given=dict(values)
        )
        # Read once here, so that a wrong address is an error of the settings.
        _ = settings.inter_broker_listener, settings.http_address, settings.all_super_users
        _ = settings.console_masks, settings.console_issuer
        settings.check_zookeeper()
        _ = settings.connection_overrides
        names = [each.name for each in settings.all_listeners]
        security.check(values, [*names, HTTP] if settings.http_listen else names)
        return settings


_ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}
