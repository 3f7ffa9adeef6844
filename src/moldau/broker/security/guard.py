"""The guard: access control as a broker's settings ask for it, by the cluster's rules."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from moldau.broker.node import Node
from moldau.broker.security.audit import Audit
from moldau.broker.security.principal import ANONYMOUS
from moldau.broker.security.standard_authorizer import StandardAuthorizer
from moldau.cluster.state.access import AccessDamaged, AclsChanged
from moldau.cluster.state.changes import AnyChange

logger = logging.getLogger("moldau.broker")


class Guard:
    """The authorizer of a broker, None if it has none, and its audit. Event loop only."""

    def __init__(self, node: Node) -> None:
        settings = node.settings
        self.audit = Audit(
            node.loop.call_later,
            settings.audit_interval_ms,
            with_admissions=settings.audit_admissions_enable,
        )
        self.authorizer: StandardAuthorizer | None = None
        if not settings.authorizer_class_name:
            return
        self.authorizer = StandardAuthorizer(
            node.state.access.acls,
            settings.all_super_users,
            allow_if_no_rules=settings.allow_everyone_if_no_acl_found,
            audit=self.audit,
        )
        node.store.subscribe(self._apply)
        if str(ANONYMOUS) in settings.all_super_users:
            logger.warning(
                "super.users contains %s: clients that do not authenticate may do everything",
                ANONYMOUS,
            )

    def stop(self) -> None:
        """Tell what the audit has not told yet."""
        self.audit.tell()

    def _apply(self, changes: Sequence[AnyChange]) -> None:
        about_rules = (AclsChanged, AccessDamaged)
        if self.authorizer is not None and any(isinstance(each, about_rules) for each in changes):
            self.authorizer.rules_changed()
