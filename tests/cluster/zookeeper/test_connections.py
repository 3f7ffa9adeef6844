"""Connections to ZooKeeper, where kazoo's own would end for good or believe a wrong answer."""

from __future__ import annotations

import asyncio

import pytest
from kazoo.protocol.connection import ConnectionHandler

from moldau.cluster.state.changes import TopicCreated
from moldau.cluster.zookeeper.sessions.operations import Unanswered
from moldau.testing import Ensemble
from moldau.testing.waiting import until_async
from tests.cluster.zookeeper.clusters import joined, topic
from tests.cluster.zookeeper.proxy import FrameProxy


def test_a_session_outlives_a_server_that_answers_one_request_less(
    ensemble: Ensemble, chroot: str
) -> None:
    """As one does that learns by this request that the session has moved: it answers the next one,
    and then closes the connection."""

    async def scenario() -> None:
        async with (
            FrameProxy(ensemble.host(0)) as proxy,
            joined(proxy.address + chroot, 1) as (one,),
        ):
            session = one.store._session
            id = session.id
            proxy.lose_answer_to(b"/lost")
            nobody_knows, *_ = await asyncio.gather(
                session.exists("/lost"), session.exists("/next"), return_exceptions=True
            )
            assert isinstance(nobody_knows, Unanswered)
            assert proxy.broken == 1
            await one.store.commit([TopicCreated(topic("a"))])
            assert session.id == id
            assert one.fences == []

    asyncio.run(scenario())


def test_no_two_requests_of_a_session_have_the_same_number(ensemble: Ensemble, chroot: str) -> None:
    """A server would take what one of an earlier connection came to for the answer to the other."""

    async def scenario() -> None:
        async with (
            FrameProxy(ensemble.host(0)) as proxy,
            joined(proxy.address + chroot, 1) as (one,),
        ):
            for _ in range(3):
                proxy.cut()
                await until_async(lambda: not one.store._session.is_connected)
                proxy.heal()
                await one.store._session.sync()
            numbers = [number for asked in proxy.asked for number in asked]
            assert sum(bool(asked) for asked in proxy.asked) >= 4
            assert numbers == sorted(set(numbers))

    asyncio.run(scenario())


def test_what_kazoo_does_not_expect_breaks_the_connection_and_no_more(
    ensemble: Ensemble, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with joined(ensemble.hosts + chroot, 1) as (one,):
            session, times = one.store._session, 0
            read = ConnectionHandler._read_response

            def fail_once(*arguments: object) -> object:
                nonlocal times
                times += 1
                if times == 1:
                    raise LookupError("not expected")
                return read(*arguments)

            monkeypatch.setattr(ConnectionHandler, "_read_response", fail_once)
            with pytest.raises(Unanswered):
                await session._send(
                    lambda: session._client.sync_async("/"), "a request", renews=False
                )
            await session.sync()
            assert times > 1

    asyncio.run(scenario())
