"""The metadata of a cluster, in ZooKeeper."""

from moldau.cluster.zookeeper.store import ZooKeeperStore

__all__ = ["ZooKeeperStore"]
