"""Limits of groups: what the settings in force mean for each, worked out once until they change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from moldau.broker.coordination.host import Host
from moldau.broker.settings.broker import BrokerSettings

T = TypeVar("T")

_MOST_KEPT = 10_000


class GroupLimits(Generic[T]):
    """Gives each group what `work_out` makes of its own settings and the broker's. Event loop only.

    Settings are replaced, never changed, so that the same object means the same settings.
    """

    __slots__ = ("_by_group", "_host", "_of_all_others", "_settings", "_work_out")

    def __init__(
        self, host: Host, work_out: Callable[[Mapping[str, str], BrokerSettings], T]
    ) -> None:
        self._host = host
        self._work_out = work_out
        self._settings: BrokerSettings | None = None
        self._of_all_others: T | None = None
        self._by_group: dict[str, tuple[Mapping[str, str], T]] = {}

    def get(self, group_id: str) -> T:
        """Return what is in force for a group."""
        settings = self._host.settings
        if settings is not self._settings:
            self._settings = settings
            self._of_all_others = None
            self._by_group.clear()
        own = self._host.state.access.group_configs.get(group_id)
        if not own:
            # Most have no settings of their own.
            if self._of_all_others is None:
                self._of_all_others = self._work_out({}, settings)
            return self._of_all_others
        known = self._by_group.get(group_id)
        if known is None or known[0] is not own:
            if len(self._by_group) >= _MOST_KEPT:
                self._by_group.clear()
            known = self._by_group[group_id] = (own, self._work_out(own, settings))
        return known[1]
