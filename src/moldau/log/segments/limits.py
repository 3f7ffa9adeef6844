"""Limits of a segment: when it is full, when it is old, and how densely it is indexed."""

from __future__ import annotations

from typing import NamedTuple

from moldau.log.config import LogConfig

NEVER = 2**63 - 1


class Limits(NamedTuple):
    """The limits of a segment before the log begins the next one."""

    index_interval: int
    max_bytes: int = NEVER
    max_index_bytes: int = NEVER
    max_age_ms: int = NEVER
    jitter_ms: int = 0

    @classmethod
    def of(cls, config: LogConfig) -> Limits:
        """Return the limits that a topic's settings mean; one object for all logs that share
        them."""
        global _latest
        if _latest[0] is config:
            return _latest[1]
        max_age_ms = config.segment_ms
        if config.compacts:
            # The active segment is never compacted, so this bounds its age too.
            max_age_ms = min(max_age_ms, config.max_compaction_lag_ms)
        limits = cls(
            config.index_interval_bytes,
            config.segment_bytes,
            config.segment_index_bytes,
            max_age_ms,
            config.segment_jitter_ms,
        )
        _latest = (config, limits)
        return limits

    def roll_after_ms(self, base: int, first_timestamp: int) -> int:
        """Return the timestamp after which a segment that began with `first_timestamp` is
        closed."""
        if first_timestamp < 0:
            return NEVER
        # Spread by the base offset: as good as random, and the same after a restart.
        jitter = base * 2654435761 % (min(self.jitter_ms, self.max_age_ms) + 1)
        return first_timestamp + self.max_age_ms - jitter


_latest: tuple[LogConfig | None, Limits] = (None, Limits(0))
