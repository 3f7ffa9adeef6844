"""The identity of a data folder: `meta.properties`, in Kafka's format."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from moldau.cluster.embedded import FILE_NAME
from moldau.log.errors import LogError
from moldau.log.store.store import LogStore


class WrongFolder(LogError):
    """The data folder belongs to another broker or another cluster."""


class Identity:
    """The identity of one data folder. Whoever uses it holds the folder's lock.

    `folder_id` is made up once and kept in the folder, so an empty disk in the place of a full one
    is noticed.
    """

    def __init__(self, logs: LogStore, broker_id: int) -> None:
        self._logs = logs
        self._folder = Path(logs.folder)
        self._broker_id = broker_id
        self.folder_id = ""

    def check_clustered(self) -> None:
        """WrongFolder if the folder is that of a broker alone."""
        if (self._folder / FILE_NAME).exists():
            raise WrongFolder(
                f"{self._folder} belongs to a broker that runs alone, and its topics are unknown "
                "to any cluster; start it without --zookeeper, or use an empty --data-dir"
            )

    def check_alone(self) -> None:
        """WrongFolder if the folder is that of a cluster's broker."""
        cluster = self._logs.meta.get("cluster.id")
        if cluster is not None and not (self._folder / FILE_NAME).exists():
            raise WrongFolder(
                f"{self._folder} belongs to the cluster {cluster}; start it with "
                "--zookeeper, or use an empty --data-dir"
            )

    def claim(self, cluster_id: str) -> None:
        """Check that the folder belongs to this broker and cluster, or mark an empty one."""
        found = self._logs.meta
        wanted = {"cluster.id": cluster_id, "node.id": str(self._broker_id)}
        for key, value in wanted.items():
            if found.get(key, value) != value:
                raise WrongFolder(
                    f"{self._folder} was made for {key}={found[key]}, but this is "
                    f"{key}={value}; every broker needs its own --data-dir, created for "
                    "its cluster"
                )
        self.folder_id = found.get("directory.id") or _new_id()
        wanted = {"version": "1", **wanted, "directory.id": self.folder_id}
        if found != wanted:
            self._logs.meta = wanted


def _new_id() -> str:
    return urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
