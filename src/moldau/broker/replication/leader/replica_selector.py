"""The replica selector: which replica a consumer should read from (KIP-392).

That is one in its own rack, if it is in sync and has the listener that the consumer came in by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.settings import InvalidSetting

if TYPE_CHECKING:
    from moldau.broker.partitions.partition import Partition
    from moldau.cluster.state.state import ClusterState

SETTING = "replica.selector.class"
_RACK_AWARE = "RackAwareReplicaSelector"


def check_selector(name: str) -> None:
    """InvalidSetting unless it is one of the two ways there are; Kafka's full names are taken."""
    if name and name.rpartition(".")[2] not in (_RACK_AWARE, "LeaderSelector"):
        raise InvalidSetting(SETTING, name, f"expected nothing or {_RACK_AWARE}")


def is_rack_aware(name: str) -> bool:
    return name.rpartition(".")[2] == _RACK_AWARE


def select_replica(
    partition: Partition, state: ClusterState, rack: str, listener: str, offset: int, me: int
) -> int | None:
    """Return the follower to read `offset` from; None if the leader is as good as any."""
    in_sync = partition.in_sync
    if in_sync is None:
        return None
    own = state.brokers.get(me)
    if own is not None and own.rack == rack:
        return None
    best: tuple[int, float, int] | None = None
    for replica in in_sync.isr:
        follower, info = in_sync.followers.get(replica), state.brokers.get(replica)
        if follower is None or info is None or info.rack != rack:
            continue
        if info.endpoint(listener) is None:
            continue
        if not follower.log_start <= offset <= follower.log_end:
            continue
        candidate = (follower.log_end, follower.caught_up_at, replica)
        if best is None or candidate > best:
            best = candidate
    return None if best is None else best[2]
