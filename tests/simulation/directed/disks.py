"""Scripts about disks: cuts and names that a power failure undoes."""

from __future__ import annotations

from functools import partial

from tests.simulation.core.world import Node
from tests.simulation.directed.replication import has_more, write
from tests.simulation.directed.stage import Stage
from tests.simulation.disk.disk import PAGE
from tests.simulation.load.producer import Producer

# The bytes of a batch of one record besides its value.
_AROUND_VALUE = 70


async def lost_name(stage: Stage) -> None:
    """A broker loses power when it has begun the second file of a log. The disk may have that file
    then, and not the first: such a log looks like one whose beginning was deleted."""
    first = stage.leader()
    await stage.configure("segment.bytes", "400")
    producer = stage.producer("producer", -1)
    await write(stage, producer, first, 6)
    first.lose_power()
    first.boot()
    first.start()
    await stage.until(lambda: first.is_serving, f"{first.name} is back")
    await stage.until(stage.metadata.is_whole, "every replica is in sync")
    await stage.elect()
    await stage.until(lambda: stage.leads(first), f"{first.name} leads")
    await stage.read_to(stage.consumer("consumer"), 6, first)


async def _grow_apart(stage: Stage) -> Node:
    """Have the first leader write on alone and die, and another one write more in its place.
    Return the first; all of its log is on its disk. Each record fills a page of a file."""
    first = stage.leader()
    await stage.configure("flush.messages", "1")
    await write(stage, _full_pages(stage.producer("producer", -1)), first, 2)
    for node in stage.replicas():
        if node is not first:
            await stage.until(partial(has_more, stage, node, 1), f"{node.name} has everything")
            stage.part(first, node)
    await write(stage, _full_pages(stage.producer("hasty", 1)), first, 3)
    await stage.until(lambda: stage.log(first).flushed == 5, "all of it is on disk")
    stage.kill(first)
    successor = await stage.succession(first)
    await stage.configure("flush.messages", "9223372036854775807")
    await write(stage, _full_pages(stage.producer("another", -1)), successor, 5)
    for node in stage.replicas():
        if node is not first:
            stage.mend(first, node)
            stage.mend(node, first)
    return first


def _full_pages(producer: Producer) -> Producer:
    producer.width = PAGE - _AROUND_VALUE
    return producer


async def _lead_again(stage: Stage, node: Node, end: int) -> None:
    """Have a broker come into sync and lead, and read from it."""
    await stage.until(lambda: node.is_serving, f"{node.name} is back")
    await stage.until(stage.metadata.is_whole, "every replica is in sync")
    await stage.elect()
    await stage.until(lambda: stage.leads(node), f"{node.name} leads")
    await stage.read_to(stage.consumer("consumer"), end, node)


async def mixed_pages(stage: Stage) -> None:
    """A follower copies its leader's records in place of its own, which it has cut off, and loses
    power. The disk may have some pages as they were before."""
    first = await _grow_apart(stage)
    first.start()
    await stage.until(
        lambda: stage.is_in_sync(first) and stage.log(first).log_end == 7,
        f"{first.name} has everything",
    )
    first.lose_power()
    first.boot()
    first.start()
    await _lead_again(stage, first, 7)


async def returned_tail(stage: Stage) -> None:
    """A follower has cut its log, begins another file with what it copies, and loses power. The
    disk may have the former file as it was before."""
    first = await _grow_apart(stage)
    await stage.configure("flush.messages", "1")
    await stage.configure("segment.bytes", str(2 * PAGE))
    first.start()
    await stage.until(
        lambda: stage.is_in_sync(first) and stage.log(first).flushed == 7,
        f"{first.name} has everything on disk",
    )
    first.lose_power()
    first.boot()
    first.start()
    await _lead_again(stage, first, 7)
