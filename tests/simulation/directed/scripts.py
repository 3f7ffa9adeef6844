"""All directed scenarios, by their names: what is played, and on what kind of cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.directed import disks, groups, replication, sharing, transactions
from tests.simulation.directed.stage import Script
from tests.simulation.scenario.scenario import (
    BRISK,
    GROUPS,
    SHARED,
    SUBSCRIBED,
    TRANSACTIONAL,
    TRANSACTIONS,
    Load,
    Scenario,
)

# Nobody but the script has leaders elected.
_SETTINGS = {**BRISK, "auto.leader.rebalance.enable": "false"}
_TRANSACTIONS = {**TRANSACTIONS, "transaction.two.phase.commit.enable": "true"}
_READERS = tuple(
    Load("committed", f"committed-{partition}", partition, -1, 0.2, TRANSACTIONAL)
    for partition in range(2)
)


@dataclass(frozen=True)
class Directed:
    """A script, and what it is played with."""

    script: Script
    settings: dict[str, str] = field(default_factory=dict)
    loads: tuple[Load, ...] = ()
    topics: tuple[str, ...] = ()

    def scenario(self, seed: int) -> Scenario:
        return Scenario(
            seed,
            partitions=1,
            loads=self.loads,
            settings={**_SETTINGS, **self.settings},
            script=name_of(self.script),
            topics=self.topics,
        )


def name_of(script: Script) -> str:
    return script.__name__.replace("_", " ")


def _transactional(script: Script, settings: dict[str, str] | None = None) -> Directed:
    return Directed(script, {**_TRANSACTIONS, **(settings or {})}, _READERS)


def _shared(script: Script) -> Directed:
    return Directed(script, GROUPS, topics=(SHARED,))


# Transactional ids that nobody uses are forgotten within seconds.
_FORGETFUL = {
    "transactional.id.expiration.ms": str(transactions.KEPT_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}
# A leader that hears nothing of ZooKeeper leads for a while by its lease.
_PATIENT = {"zookeeper.session.timeout.ms": "6000"}
# Nobody falls out of sync before another is elected.
_TOLERANT = {"replica.lag.time.max.ms": "10000"}

SCRIPTS = {
    name_of(each.script): each
    for each in (
        _transactional(transactions.late_write),
        _transactional(transactions.late_answer),
        _transactional(transactions.late_marker),
        _transactional(transactions.outdated_marker),
        _transactional(transactions.half_marked),
        _transactional(transactions.old_coordinator),
        _transactional(transactions.silent_producer),
        _transactional(transactions.interrupted_markers),
        _transactional(transactions.lost_marker),
        _transactional(transactions.restarted_leader),
        _transactional(transactions.moved_offsets),
        _transactional(transactions.late_offset),
        _transactional(transactions.open_offset),
        _transactional(transactions.old_rival),
        _transactional(transactions.prepared),
        _transactional(transactions.expired_id, _FORGETFUL),
        _transactional(transactions.prepared_for_long, _FORGETFUL),
        Directed(groups.late_commit),
        Directed(groups.late_heartbeat, GROUPS, topics=(SUBSCRIBED,)),
        Directed(replication.stale_leader, _PATIENT),
        Directed(replication.thawed_leader),
        Directed(replication.lagging_watermark),
        Directed(replication.early_joiner),
        Directed(replication.longer_epoch, _TOLERANT),
        Directed(replication.unheard_epoch, _TOLERANT),
        Directed(disks.lost_name),
        Directed(disks.mixed_pages),
        Directed(disks.returned_tail),
        Directed(replication.lost_acknowledgement),
        Directed(replication.reborn, _PATIENT),
        Directed(replication.lost_tail, _PATIENT),
        Directed(replication.given_up_place, _PATIENT),
        _shared(sharing.late_word),
        _shared(sharing.lost_lock),
        _shared(sharing.old_share_leader),
        _shared(sharing.slept_leader),
        _shared(sharing.reset_offsets),
    )
}


def directed(seed: int, name: str) -> Scenario:
    """The scenario of a script, in the order of events of a seed."""
    return SCRIPTS[name].scenario(seed)
