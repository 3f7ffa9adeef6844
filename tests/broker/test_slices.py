"""Long work in slices lets others have the loop."""

from __future__ import annotations

import asyncio
from time import monotonic

from moldau.broker.slices import Slices


def test_work_rests_while_there_are_others_to_serve() -> None:
    async def play() -> list[int]:
        loop = asyncio.get_running_loop()
        served = 0

        def serve() -> None:
            nonlocal served
            served += 1
            _work(0.0002)
            loop.call_soon(serve)

        loop.call_soon(serve)
        slices = Slices()
        turns = []
        for _ in range(5):
            before = served
            _work(0.005)
            await slices.rest()
            turns.append(served - before)
        return turns

    # A client that waits for each answer asks again only after it got one.
    assert min(asyncio.run(play())) > 1


def _work(seconds: float) -> None:
    end = monotonic() + seconds
    while monotonic() < end:
        pass
