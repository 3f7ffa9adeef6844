"""The host of coordinators in a running broker."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from moldau.broker.node import Node
from moldau.broker.partitions.replicas import Replicas
from moldau.broker.settings.broker import BrokerSettings
from moldau.cluster.controller import Controller
from moldau.cluster.decisions.assignment import NewTopic
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.state import ClusterState


class NodeHost:
    """A `Host` made of the parts of one broker."""

    def __init__(self, node: Node, controller: Controller, replicas: Replicas) -> None:
        self._node = node
        self._controller = controller
        self._replicas = replicas
        self.loop: asyncio.AbstractEventLoop = node.loop
        self.state: ClusterState = node.state

    @property
    def settings(self) -> BrokerSettings:
        return self._node.settings

    def now_ms(self) -> int:
        return self._node.now_ms()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._node.spawn(work)

    async def ensure_topic(self, topic: NewTopic) -> ClusterError | None:
        """Create a topic unless it exists; done when this broker holds its part of it."""
        (outcome,) = await self._controller.ensure_topics([topic])
        await self._replicas.caught_up()
        return outcome if isinstance(outcome, ClusterError) else None
