"""Scripts about replication: leaders that are over, logs that part, disks that are lost."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.simulation.checks.history import Violation
from tests.simulation.core.world import Node
from tests.simulation.directed.stage import Stage
from tests.simulation.load.producer import Producer
from tests.simulation.load.talker import BACKOFF_S, Failed
from tests.simulation.zookeeper.tree import Transaction

# How often a client tries again before nobody can believe any more that it helps.
_TRIES = 30


async def write(stage: Stage, producer: Producer, leader: Node, count: int = 1) -> None:
    """Write so many records, each until it is acknowledged."""
    while count:
        try:
            count -= await producer.write(stage.address(leader)) is Error.NONE
        except Failed:
            pass
        if count:
            await stage.pause(BACKOFF_S / 4)


def has_more(stage: Stage, node: Node, end: int) -> bool:
    return stage.log(node).log_end > end


async def stale_leader(stage: Stage) -> None:
    """A leader has not heard of its successor, and is asked by a client that has (KIP-320)."""
    first, second, _ = stage.replicas()
    network = stage.world.network
    await stage.restart(first)
    await stage.until(lambda: stage.leads(second), f"{second.name} leads")
    producer, consumer = stage.producer("producer", -1), stage.consumer("consumer")
    await write(stage, producer, second, 3)
    await stage.read_to(consumer, 3, second)
    stage.world.tell("FAULT", f"{second.name} hears nothing of ZooKeeper")
    for server in stage.world.ensemble.servers:
        network.cut(server.machine, second.machine)
    # The controller may be the one that hears nothing, not even that it was done.
    stage.aside(stage.elect())
    await stage.until(lambda: stage.leads(first), f"{first.name} leads")
    await write(stage, producer, first)
    await stage.read_to(consumer, 4, first)
    assert stage.believes_to_lead(second), "it knows of its successor"
    await consumer.ask_end(stage.address(second))
    await consumer.fetch(stage.address(second))
    for server in stage.world.ensemble.servers:
        network.mend(server.machine, second.machine)


async def thawed_leader(stage: Stage) -> None:
    """A leader was frozen for longer than its session lasts, and wakes up with the request of a
    client in its socket that names no epoch."""
    leader = stage.leader()
    producer, consumer = stage.producer("producer", -1), stage.consumer("consumer")
    await write(stage, producer, leader, 3)
    await stage.read_to(consumer, 3, leader)
    stage.freeze(leader)
    successor = await stage.succession(leader)
    await write(stage, producer, successor)
    await stage.read_to(consumer, 4, successor)
    asked = stage.aside(consumer.fetch(stage.address(leader)._replace(epoch=-1)), Failed)
    await stage.pause(0.2)
    stage.thaw(leader)
    await stage.until(lambda: asked.is_done, "it has answered")


async def lagging_watermark(stage: Stage) -> None:
    """A new leader does not know yet how much was committed under the one before (KIP-207)."""
    leader = stage.leader()
    heirs = [node for node in stage.replicas() if node is not leader]
    producer, consumer = stage.producer("producer", -1), stage.consumer("consumer")
    await write(stage, producer, leader, 3)
    await stage.until(
        lambda: all(stage.log(node).high_watermark == 3 for node in heirs),
        "all know what is committed",
    )
    for node in heirs:
        stage.hold_answer(
            Api.FETCH,
            source=node,
            target=leader,
            when=partial(has_more, stage, node, 3),
        )
    await write(stage, producer, leader)
    await stage.read_to(consumer, 4, leader)
    stage.part(*heirs)
    stage.kill(leader)
    successor = await stage.succession(leader)
    assert stage.log(successor).high_watermark == 3, "it knows what is committed"
    await consumer.ask_end(stage.address(successor))
    leader.start()


async def early_joiner(stage: Stage) -> None:
    """Somebody who has less than was committed comes to a new leader that does not know yet how
    much that was."""
    first, second, third = stage.replicas()
    await stage.restart(first)
    await stage.until(lambda: stage.leads(second), f"{second.name} leads")
    producer = stage.producer("producer", -1)
    await write(stage, producer, second, 3)
    await stage.until(lambda: stage.log(first).high_watermark == 3, "it knows what is committed")
    stage.part(second, third)
    stage.hold_answer(
        Api.FETCH, source=first, target=second, when=partial(has_more, stage, first, 3)
    )
    # It is committed when the third one is out of sync; the first one is not told any more.
    await write(stage, producer, second)
    stage.part(first, second)
    stage.hold_answer(Api.FETCH, source=third, target=first)
    await stage.elect()
    await stage.until(lambda: stage.leads(first), f"{first.name} leads")
    await stage.pause(2.0)


async def _part_ways(stage: Stage) -> None:
    """Two brokers lead one after the other, and each is the only one that knows what it wrote; but
    the third has the first one's records."""
    first, second, third = stage.replicas()
    producer = stage.producer("hasty", 1)
    await write(stage, producer, first, 3)
    await stage.until(
        lambda: stage.log(third).log_end == stage.log(first).log_end,
        f"{third.name} has everything",
    )
    stage.part(second, third)
    stage.kill(first)
    await stage.until(lambda: stage.leads(second), f"{second.name} leads")
    await write(stage, producer, second, 5)
    stage.kill(second)
    await stage.until(lambda: stage.leads(third), f"{third.name} leads")
    await write(stage, producer, third, 2)
    for one in (first, second):
        stage.mend(one, third)
        stage.mend(third, one)
        one.start()
    stage.mend(first, second)


async def longer_epoch(stage: Stage) -> None:
    """A follower has less of an epoch than its leader, and then an epoch of its own (KIP-279)."""
    first, second, _ = stage.replicas()
    await write(stage, stage.producer("producer", -1), first, 3)
    stage.cut(first, second)
    await _part_ways(stage)


async def unheard_epoch(stage: Stage) -> None:
    """A follower has an epoch of its own where its leader has one that it never heard of."""
    first, second, _ = stage.replicas()
    await stage.restart(first)
    await stage.until(lambda: stage.leads(second), f"{second.name} leads")
    await write(stage, stage.producer("producer", -1), second, 3)
    stage.cut(first, second)
    await stage.elect()
    await stage.until(lambda: stage.leads(first), f"{first.name} leads")
    await _part_ways(stage)


async def lost_acknowledgement(stage: Stage) -> None:
    """A leader dies with what nobody else has, though it was acknowledged (acks=1). Its idempotent
    producer goes on with the next number, one at a time, and is to be told that a number is missing
    that will never come."""
    leader = stage.leader()
    followers = [node for node in stage.replicas() if node is not leader]
    producer = stage.idempotent("hasty", 1)
    producer_id, _ = await producer.begin()

    async def send(node: Node, sequence: int) -> Error:
        with suppress(Failed):
            return await producer.write_once(stage.address(node), producer_id, sequence)
        return Error.NETWORK_EXCEPTION

    assert await send(leader, 0) is Error.NONE
    for node in followers:
        await stage.until(partial(has_more, stage, node, 0), f"{node.name} has the first number")
        stage.part(leader, node)
    assert await send(leader, 1) is Error.NONE
    for node in followers:
        # It does not lead yet, and knows from then on that this number is to come.
        await send(node, 2)
    stage.kill(leader)
    successor = await stage.succession(leader)
    for _ in range(_TRIES):
        if await send(successor, 2) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER:
            break
        await stage.pause(BACKOFF_S)
    else:
        raise Violation(f"a producer was told {_TRIES} times to try again what can never succeed")
    leader.start()


async def reborn(stage: Stage) -> None:
    """A leader asks the cluster to take somebody into sync, who loses everything before that is
    agreed on (KIP-903)."""
    leader = stage.leader()
    joiner = next(node for node in stage.replicas() if node not in (leader, stage.controller()))
    network, world = stage.world.network, stage.world
    producer = stage.producer("producer", -1)
    await write(stage, producer, leader, 3)
    stage.kill(joiner)
    await stage.until(lambda: not stage.is_in_sync(joiner), f"{joiner.name} is out of sync")
    await write(stage, producer, leader, 2)
    question = stage.hold_request(Api.FETCH, source=joiner, target=leader)
    joiner.start()
    await stage.until(
        lambda: leader.broker is not None and joiner.id in leader.broker.state.brokers,
        f"{leader.name} knows of it",
    )
    await stage.until(lambda: question.is_there, f"{joiner.name} wants to follow")
    await stage.pause(0.2)
    for server in world.ensemble.servers:
        network.cut(leader.machine, server.machine)
    question.let_go()

    def is_proposed() -> bool:
        held = stage.partition(leader)
        return held is not None and held.in_sync is not None and held.in_sync.proposed is not None

    await stage.until(is_proposed, f"{joiner.name} is to be in sync")
    await stage.pause(0.1)
    assert joiner.process is not None
    sessions = [client._session for client in world.clients[joiner.process]]
    world.tell("FAULT", f"{joiner.name} loses everything")
    joiner.end()
    joiner.disk.wipe()
    for session in sessions:
        if session is not None:
            world.ensemble.end(session)
    stage.hold_request(Api.FETCH, source=joiner, target=leader)
    joiner.start()
    await stage.until(lambda: stage.partition(joiner) is not None, f"{joiner.name} has a new log")
    for server in world.ensemble.servers:
        network.mend(leader.machine, server.machine)
    await stage.pause(2.0)


async def lost_tail(stage: Stage) -> None:
    """A leader is frozen when it has seen that a follower has everything. The follower loses power,
    and the end of its log with it; the cluster knows that, but not yet that it is in another life,
    when the leader asks to take it into sync (KIP-903)."""
    leader = stage.leader()
    joiner, third = (node for node in stage.replicas() if node is not leader)
    producer = stage.producer("producer", -1)
    await write(stage, producer, leader, 3)
    stage.kill(joiner)
    await stage.until(lambda: not stage.is_in_sync(joiner), f"{joiner.name} is out of sync")
    await write(stage, producer, leader, 20)

    def freeze() -> None:
        stage.loop.later_in(stage.loop.outside, 0.01, stage.freeze, leader)

    stage.at_request(
        Api.FETCH,
        freeze,
        source=joiner,
        when=lambda: stage.partition(joiner) is not None and stage.log(joiner).log_end == 23,
    )
    joiner.start()
    await stage.until(lambda: stage.is_frozen(leader), f"{joiner.name} has everything")
    stage.cut(third, joiner)
    joiner.lose_power()
    said = _silenced_after_commit(stage, joiner)
    joiner.boot()
    joiner.start()
    await stage.until(lambda: bool(said) or joiner.is_serving, f"{joiner.name} is back")
    stage.thaw(leader)
    await stage.pause(1.5)
    _mend(stage, joiner)


async def given_up_place(stage: Stage) -> None:
    """A follower that is in sync loses power, and the end of its log with it. Its leader hears that
    it has given up its place when nobody knows yet that it is in another life."""
    leader, controller = stage.leader(), stage.controller()
    followers = [node for node in stage.replicas() if node is not leader]
    # Nobody notices so soon that the controller was away.
    joiner = controller if controller in followers else followers[0]
    await write(stage, stage.producer("producer", -1), leader, 20)
    await stage.until(lambda: stage.log(joiner).log_end == 20, f"{joiner.name} has everything")
    joiner.lose_power()
    said = _silenced_after_commit(stage, joiner)
    joiner.boot()
    joiner.start()
    await stage.until(lambda: bool(said) or joiner.is_serving, f"{joiner.name} is back")
    await stage.pause(1.5)
    _mend(stage, joiner)


def _silenced_after_commit(stage: Stage, node: Node) -> list[Transaction]:
    """Cut a broker from ZooKeeper when it has changed a topic; return what it committed by then."""
    world, said = stage.world, list[Transaction]()

    def committed(transaction: Transaction, session_id: int) -> None:
        is_topic = any(each.path.startswith("/moldau/topics/") for each in transaction.changes)
        if is_topic and not said and world.ensemble.owners[session_id] is node.machine:
            said.append(transaction)
            for server in world.ensemble.servers:
                world.network.cut(node.machine, server.machine)

    world.ensemble.on_commit.append(committed)
    return said


def _mend(stage: Stage, node: Node) -> None:
    for server in stage.world.ensemble.servers:
        stage.world.network.mend(node.machine, server.machine)
