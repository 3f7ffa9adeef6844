"""Losses: which replicas of a broker that comes back are not what the cluster counts on."""

from __future__ import annotations

import logging

import msgspec

from moldau.cluster.decisions.elections import Held, Loss
from moldau.cluster.state.topics import Topic
from moldau.log.store.store import LogStore
from moldau.topic_partition import TopicPartition

logger = logging.getLogger("moldau.broker")

_MOST_SENTENCES = 10


class Missing(msgspec.Struct, frozen=True):
    """A log that ends before it did, or is not there."""

    topic: str
    index: int
    had: int
    # None: its folder is gone.
    has: int | None

    def __str__(self) -> str:
        what = "its folder is gone" if self.has is None else f"it ends at {self.has}"
        return f"{self.topic}-{self.index} ended at {self.had} when this broker stopped; now {what}"


class Losses:
    """Compares the logs with what the last life of the broker wrote down of them.

    Made before the broker enters its cluster and before any log is created. `registration` is the
    number of the registration that the cluster last saw; see `LastLife.lost_nothing`. A broker that
    only lost its session is in the same life, and lost nothing but logs that went offline.
    """

    def __init__(
        self,
        logs: LogStore,
        registration: int = -1,
        *,
        is_wiped: bool = False,
        is_same_life: bool = False,
    ) -> None:
        self._logs = logs
        self._last_life = logs.life.last
        self.is_wiped = is_wiped
        self._is_same_life = is_same_life
        self.is_sure = is_same_life or self._last_life.lost_nothing(registration)
        self.missing: dict[TopicPartition, Missing] = {}

    def __call__(self, topic: Topic, index: int) -> Held:
        """Return what this broker holds of a partition, and what may be lost."""
        if self.is_wiped:
            return Held(Loss.ALL)
        key = (topic.name, index)
        log = self._logs.logs.get(key)
        if log is not None and log.offline is not None:
            return Held(Loss.TAIL)
        # It belongs to a deleted topic of the same name, as does everything known by that name.
        is_other = log is not None and log.topic_id not in (None, topic.id)
        end = 0 if log is None or is_other else log.log_end
        life = self._last_life
        if not self.is_sure:
            # A power failure may take the end of a log, but not the log.
            had = life.high_watermarks.get(key, 0) if log is None else 0
            is_short = had > 0
        else:
            had = 0 if is_other and life.ends is None else life.end_of(topic.name, topic.id, index)
            is_short = end < had
        if is_short:
            self.missing[key] = Missing(*key, had, None if log is None else end)
            return Held(Loss.ALL, end, had)
        loss = Loss.NONE if self.is_sure else Loss.TAIL
        return Held(loss, end, kept_elr=self._is_same_life or life.ends is not None)

    def tell(self) -> None:
        """Log what was found."""
        if self.is_wiped:
            logger.warning(
                "this is not the data folder that this broker had before: it lacks data that the "
                "cluster relies on, so everything is copied again"
            )
            return
        if not self.is_sure and self._logs.logs:
            logger.warning(
                "the last stop was not clean, and the machine was restarted since "
                "then, or the folder is a copy: data that was not forced to disk "
                "may be lost, so this broker is not in sync for any partition "
                "until it has caught up"
            )
        for missing in list(self.missing.values())[:_MOST_SENTENCES]:
            logger.error("%s. It is not in sync until it has been copied again", missing)
        if len(self.missing) > _MOST_SENTENCES:
            logger.error("and the same for %d more", len(self.missing) - _MOST_SENTENCES)
