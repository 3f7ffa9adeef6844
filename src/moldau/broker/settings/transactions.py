"""The settings of the transaction coordinator."""

from __future__ import annotations

from moldau.broker.settings.zookeeper import ZooKeeperSettings
from moldau.settings import INT_MAX, setting


class TransactionSettings(ZooKeeperSettings):
    """The settings of a broker that say how it coordinates transactions.

    It has the others' settings only because a class with slots can have one such parent.
    """

    request_timeout_ms: int = setting(
        "request.timeout.ms",
        30_000,
        "How long a write of the transaction coordinator waits for all in-sync replicas.",
        minimum=1,
        maximum=INT_MAX,
    )
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        900_000,
        "The longest transaction timeout that a producer may ask for.",
        minimum=1,
        maximum=INT_MAX,
        dynamic=True,
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        604_800_000,
        "How long an unused transactional id is kept.",
        minimum=1,
        maximum=INT_MAX,
        dynamic=True,
    )
    transaction_two_phase_commit_enable: bool = setting(
        "transaction.two.phase.commit.enable",
        True,
        "Whether producers may ask for transactions that no timeout ends (KIP-939).",
    )
    transaction_partition_verification_enable: bool = setting(
        "transaction.partition.verification.enable",
        True,
        "Whether the coordinator is asked before a transaction's first write to a partition is "
        "accepted (KIP-890). Clients of transaction version 2 are always verified.",
        dynamic=True,
    )
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions",
        50,
        "The number of partitions of __transaction_state when it is created.",
        minimum=1,
        maximum=INT_MAX,
    )
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        3,
        "The replication factor of __transaction_state; fewer if there are fewer brokers.",
        minimum=1,
        maximum=32767,
    )
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr",
        2,
        "min.insync.replicas of __transaction_state when it is created; no more than it "
        "has replicas.",
        minimum=1,
        maximum=INT_MAX,
    )
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        100 << 20,
        "The segment size of __transaction_state.",
        minimum=14,
        maximum=INT_MAX,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "How often to look for transactions that have timed out.",
        minimum=1,
        maximum=INT_MAX,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "How often to look for transactional ids that have expired.",
        minimum=1,
        maximum=INT_MAX,
    )
