"""Rolling upgrades: brokers get other settings, one after the other, while everything goes on."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.core.world import Node, World
from tests.simulation.load.talker import Talker

# What one version of a cluster's settings has, and the next.
VERSIONS: tuple[dict[str, str], ...] = (
    {"num.replica.fetchers": "1"},
    {
        "num.replica.fetchers": "2",
        "replica.fetch.wait.max.ms": "200",
        "replica.fetch.response.max.bytes": "4096",
        "log.flush.offset.checkpoint.interval.ms": "3000",
    },
    {"replica.lag.time.max.ms": "3000", "log.segment.bytes": "2048", "num.replica.fetchers": "1"},
)
_WHOLE_S = 15.0
_STOPPED_S = 15.0


class Upgrader(Talker):
    """Stops each broker cleanly and starts it with other settings, once the others are well."""

    def __init__(
        self, world: World, name: str, every_s: float, is_whole: Callable[[], bool]
    ) -> None:
        super().__init__(world, name)
        self._every_s = every_s
        self._is_whole = is_whole
        self._settings = {node.id: node.settings for node in world.nodes.values()}
        self.is_done = False

    async def run(self) -> None:
        number = 0
        while not self.is_stopping:
            await self.pause(self._every_s)
            number += 1
            for node in self.world.nodes.values():
                if not self.is_stopping:
                    await self._upgrade(node, VERSIONS[number % len(VERSIONS)])
        self.is_done = True

    async def _upgrade(self, node: Node, settings: dict[str, str]) -> None:
        await self._until(self._is_whole, _WHOLE_S)
        node.settings = {**self._settings[node.id], **settings}
        process = node.process
        if process is None or not node.is_serving:
            # It is down; it has them when it comes back.
            return
        self.world.tell(self.name, f"restarts {node.name} with {settings}")
        self.world.spawn(process, node.stop())
        await self._until(lambda: node.process is not process, _STOPPED_S)
        self.world.loop.soon_in(self.world.loop.outside, self._start, node, process)

    def _start(self, node: Node, stopped: object) -> None:
        if node.process is stopped:
            # It hangs on its way down: systemd would kill it by now.
            node.end()
        node.start()

    async def _until(self, is_so: Callable[[], bool], within_s: float) -> None:
        until_s = self.loop.now_s + within_s
        while not is_so() and self.loop.now_s < until_s:
            await self.pause(0.2)
