"""Features: what all brokers of the cluster can do, and therefore any of them may rely on.

While no broker is registered, as when all have lost their sessions at once, nobody knows less than
this one: clients that were told otherwise would give up for good.
"""

from __future__ import annotations

from moldau.cluster.state.state import ClusterState

# The level of `group.version` that a broker of this release knows (KIP-848).
GROUP_VERSION = 1
# The level of `share.version` that a broker of this release knows (KIP-932).
SHARE_VERSION = 1
# The level of `transaction.version` that a broker of this release knows (KIP-890).
TRANSACTION_VERSION = 2


def transaction_version(state: ClusterState) -> int:
    """Return the level of transactions that every broker knows; 0 if one knows none.

    A broker that knows none neither takes markers nor verifies writes, so there are no transactions
    before the last one is replaced.
    """
    levels = (info.transaction_version for info in state.brokers.values())
    return min(levels, default=TRANSACTION_VERSION)


def group_version(state: ClusterState) -> int:
    """Return the level of group protocols that every broker knows; 0 if one knows only classic
    groups, for it would coordinate some of them next."""
    # A list: every heartbeat of a consumer group comes by here.
    levels = [info.group_version for info in state.brokers.values()]
    return min(levels, default=GROUP_VERSION)


def share_version(state: ClusterState) -> int:
    """Return the level of share groups that every broker knows; 0 if one knows none, for it would
    coordinate some of them, or lead partitions that they read."""
    levels = (info.share_version for info in state.brokers.values())
    return min(levels, default=SHARE_VERSION)
