"""Share groups (KIP-932): how fast a partition is worked off, and how old its messages get."""

from __future__ import annotations

import asyncio
import sys
import time

import uvloop

from bench.load.consumer_groups import TIMEOUT_S, connect
from bench.load.share_member import ShareMember
from bench.tasks import ShareAcknowledgements, ShareStamped, ShareTopic
from moldau.bench.errors import BenchFailed
from moldau.bench.load.stamped import STAMP
from moldau.bench.proc import cpu_seconds
from moldau.bench.tasks import Ages, Flow, RequestFlow
from moldau.records.batch import batches
from moldau.records.record import records_of

# What Java's consumer asks for.
_MOST_RECORDS = 500


async def _members(
    task: ShareTopic | ShareAcknowledgements | ShareStamped, number: int
) -> list[ShareMember]:
    found = [
        ShareMember(await connect(task.host, task.port), task.group, f"member-{n}", task.topic)
        for n in range(number)
    ]
    await asyncio.gather(*(member.join() for member in found))
    return found


def _size(member: ShareMember) -> int:
    return sum(last - first + 1 for first, last in member.held)


def share_topic(task: ShareTopic) -> Flow:
    return uvloop.run(asyncio.wait_for(_share_topic(task), TIMEOUT_S))


async def _share_topic(task: ShareTopic) -> Flow:
    members = await _members(task, task.consumers)
    delivered = 0
    ended = 0.0
    broker_cpu_s = client_cpu_s = 0.0

    async def work(member: ShareMember) -> None:
        nonlocal delivered, ended, broker_cpu_s, client_cpu_s
        while delivered < task.count:
            await member.fetch(most=_MOST_RECORDS)
            delivered += _size(member)
            if delivered >= task.count and not ended:
                ended = time.monotonic()
                broker_cpu_s = cpu_seconds(task.broker_pid) - broker_cpu
                client_cpu_s = time.process_time() - client_cpu
        # What is held is accepted on the way.
        await member.fetch(most=_MOST_RECORDS, wait_ms=0)

    client_cpu, broker_cpu = time.process_time(), cpu_seconds(task.broker_pid)
    started = time.monotonic()
    await asyncio.gather(*map(work, members))
    if delivered != task.count:
        raise BenchFailed(f"{delivered} messages were delivered of {task.count}")
    await asyncio.gather(*(member.leave() for member in members))
    return Flow(delivered, ended - started, broker_cpu_s, client_cpu_s, started, ended)


def acknowledge_one_by_one(task: ShareAcknowledgements) -> RequestFlow:
    return uvloop.run(asyncio.wait_for(_acknowledge(task), TIMEOUT_S))


async def _acknowledge(task: ShareAcknowledgements) -> RequestFlow:
    members = await _members(task, task.consumers)
    count = 0
    until = time.monotonic() + task.warm_up_s

    async def work(member: ShareMember) -> None:
        nonlocal count
        while time.monotonic() < until:
            if not member.held:
                await member.fetch(most=_MOST_RECORDS)
                continue
            first, last = member.held.pop(0)
            if first < last:
                member.held.insert(0, (first + 1, last))
            await member.acknowledge(first)
            count += 1

    await asyncio.gather(*map(work, members))
    before, until = count, time.monotonic() + task.seconds
    broker_cpu, started = cpu_seconds(task.broker_pid), time.monotonic()
    await asyncio.gather(*map(work, members))
    flow = RequestFlow(
        requests=count - before,
        total_requests=count,
        seconds=time.monotonic() - started,
        broker_cpu_s=cpu_seconds(task.broker_pid) - broker_cpu,
    )
    await asyncio.gather(*(member.leave() for member in members))
    return flow


def share_stamped(task: ShareStamped) -> Ages:
    return uvloop.run(asyncio.wait_for(_share_stamped(task), TIMEOUT_S))


async def _share_stamped(task: ShareStamped) -> Ages:
    (member,) = await _members(task, 1)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    ages: list[float] = []
    seen = 0
    while seen < task.count:
        records = await member.fetch(most=_MOST_RECORDS)
        arrived = time.monotonic_ns()
        for position, _ in batches(records):
            for record in records_of(records, position):
                # A batch comes whole, whatever of it is for this member.
                if not any(first <= record.offset <= last for first, last in member.held):
                    continue
                seen += 1
                number, sent = STAMP.unpack_from(record.value or b"")
                if number >= task.warm_up:
                    ages.append((arrived - sent) / 1e9)
    await member.leave()
    return Ages(ages)
