"""Mutations: changes to topics cost the controller, so that there is a quota on them (KIP-599).

Clients that know the error are refused while they owe something; others are only told to wait.
"""

from __future__ import annotations

import math
from typing import Any

from moldau.broker.net.request import Request
from moldau.broker.security.quotas import Quotas
from moldau.cluster.errors import ClusterError
from moldau.wire.errors import Error


class Mutations:
    """The changes to the cluster that one request asks for."""

    def __init__(self, quotas: Quotas, request: Request, strict_since: int) -> None:
        self._quotas = quotas
        self._who = (request.context.principal.name, request.client_id)
        self._is_strict = request.version >= strict_since
        self._is_limited = bool(quotas.names)

    def take(self, count: int) -> ClusterError | None:
        """Count so many partitions; return the error if they have to wait."""
        if not self._is_limited:
            return None
        if self._is_strict and self._quotas.owes_s(*self._who) > 0:
            message = "The throttling quota has been exceeded."
            return ClusterError(Error.THROTTLING_QUOTA_EXCEEDED, message)
        self._quotas.take(*self._who, count)
        return None

    def told(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return the answer with how long the client has to wait before it changes more."""
        wait_s = self._quotas.owes_s(*self._who) if self._is_limited else 0.0
        return answer | {"throttle_time": math.ceil(wait_s * 1000)} if wait_s else answer
