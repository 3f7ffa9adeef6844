"""A broker before it is one of its cluster, and after it is one no more, as clients see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from moldau.broker.membership.membership import Membership
from moldau.broker.server import Broker as Server
from moldau.broker.settings.broker import BrokerSettings
from moldau.cluster.state.changes import BrokerLeft
from moldau.peer.aio import AsyncConnection
from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.wire_client import Client, inside

WITHIN_S = 60


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_who_connects_to_a_broker_that_is_not_registered_yet_waits_until_it_is(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register = Membership.register

    async def story() -> None:
        is_registering, may_register = asyncio.Event(), asyncio.Event()

        async def register_later(self: Membership) -> None:
            is_registering.set()
            await may_register.wait()
            await register(self)

        monkeypatch.setattr(Membership, "register", register_later)
        settings = {"listeners": "127.0.0.1:0", "log.dirs": str(tmp_path), "node.id": "7"}
        broker = Server(BrokerSettings.parse(settings))
        starting = asyncio.create_task(broker.start())
        await is_registering.wait()
        # It is not refused, which would be the sign of a dead broker.
        _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        asking = asyncio.create_task(AsyncConnection.connect("127.0.0.1", broker.port, "test"))
        done, _ = await asyncio.wait([asking, starting], timeout=0.1)
        assert not done
        assert not broker.connections
        may_register.set()
        await starting
        answer = await (await asking).ask(Api.METADATA, {"topics": []})
        assert [each.node_id for each in answer.brokers] == [7]
        writer.close()
        await broker.stop()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(story(), WITHIN_S))


def test_a_broker_whose_registration_is_lost_still_names_itself(moldau_broker: Broker) -> None:
    def lose_all(server: Server) -> None:
        server.state.apply(BrokerLeft(server.id))

    with Client(moldau_broker) as client:
        topic = client.create()
        inside(moldau_broker, lose_all)
        # librdkafka drops every broker that an answer leaves out, and then asks nobody any more.
        answer = client.ask(Api.METADATA, topics=[{"name": topic}])
        (found,) = answer.brokers
        assert (found.host, found.port) == (moldau_broker.host, moldau_broker.port)
        # But it leads nothing.
        assert answer.topics[0].partitions[0].leader_id == -1
        (described,) = client.ask(Api.DESCRIBE_CLUSTER).brokers
        assert described.port == moldau_broker.port
