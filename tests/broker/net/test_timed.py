"""Work that is timed step by step behaves as if it were not."""

from __future__ import annotations

import asyncio
import time

import pytest

from moldau.broker.net.timed import timed


def busy(seconds: float) -> None:
    """Hold the loop."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def test_only_the_steps_count_and_not_the_waiting() -> None:
    steps: list[float] = []
    waited: list[float] = []

    async def work() -> str:
        busy(0.05)
        asked = time.monotonic()
        await asyncio.sleep(0.1)
        waited.append(time.monotonic() - asked)
        busy(0.05)
        return "done"

    async def run() -> str:
        return await timed(work(), lambda began, ended: steps.append(ended - began))

    started = time.monotonic()
    assert asyncio.run(run()) == "done"
    took = time.monotonic() - started
    assert len(steps) == 2
    # A machine that is busy may take its time for the steps as well.
    assert 0.1 <= sum(steps) < took - waited[0] / 2


def test_errors_and_cancellation_go_through() -> None:
    seen: list[str] = []

    async def failing() -> None:
        await asyncio.sleep(0)
        raise ValueError("so")

    async def waiting() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def resilient() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "late"
        return "never"

    async def run() -> None:
        with pytest.raises(ValueError, match="so"):
            await timed(failing(), lambda *_: None)
        assert await timed(resilient(), lambda *_: None) == "late"

        async def wrapped() -> None:
            await timed(waiting(), lambda *_: None)

        task = asyncio.create_task(wrapped())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert seen == ["cancelled"]


def test_a_future_is_waited_for() -> None:
    async def run() -> int:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, 5)
        return await timed(future, lambda *_: None)

    assert asyncio.run(run()) == 5
