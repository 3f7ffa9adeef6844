"""Committers, kept from batch to batch: they need not connect and read the commit log anew."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

from moldau.peer.cluster import Cluster
from moldau.spark.sink.committing import Committer
from moldau.spark.sink.staged import Staged, commit_by
from moldau.spark.sink.staging_settings import StagingSettings


class Committers:
    """At most one, for the settings that were used last. For one thread."""

    def __init__(self) -> None:
        self._settings: StagingSettings | None = None
        self._cluster: Cluster | None = None
        self._committer: Committer | None = None

    def commit(self, settings: StagingSettings | None, staged: Sequence[Staged]) -> None:
        """Decide for the batch that was staged, and commit it."""
        if settings is None or not staged:
            return
        if self._committer is None or self._settings != settings:
            self.close()
            self._settings = settings
            self._cluster = Cluster(settings.bootstrap, settings.peer)
            self._committer = Committer(self._cluster)
        try:
            commit_by(self._committer, staged)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
        self._cluster = self._committer = self._settings = None


def committers_of_process() -> Committers:
    """Return those of this process, which commits one batch after another.

    Spark uses the processes again in which it commits what sinks have written.
    """
    # A forked process must not talk on its parent's sockets.
    return _committers(os.getpid())


@cache
def _committers(process: int) -> Committers:
    return Committers()
