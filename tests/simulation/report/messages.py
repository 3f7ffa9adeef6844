"""Messages in words: who asked whom for what, for the story of a run."""

from __future__ import annotations

from moldau.wire.apis import Api
from tests.simulation.core.world import PORT, World
from tests.simulation.network.transport import Transport


class Messages:
    """Adds every message between processes to the story of a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def sent(self, transport: Transport, data: bytes) -> None:
        source, target = transport.process.name, transport.far.name
        if transport.get_extra_info("sockname")[1] == PORT:
            number = int.from_bytes(data[4:8], "big", signed=True)
            self._world.tell(source, f"-> {target}: answer #{number}, {len(data)} bytes")
        else:
            self._world.tell(source, f"-> {target}: {_request(data)}, {len(data)} bytes")


def _request(data: bytes) -> str:
    key, version = int.from_bytes(data[4:6], "big"), int.from_bytes(data[6:8], "big")
    number = int.from_bytes(data[8:12], "big", signed=True)
    try:
        return f"{Api(key).name} v{version} #{number}"
    except ValueError:
        return f"request {key} v{version} #{number}"
