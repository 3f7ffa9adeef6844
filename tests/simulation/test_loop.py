"""The virtual loop does the steps of a process in the order in which they became due."""

from __future__ import annotations

import random

from tests.simulation.core.loop import VirtualLoop
from tests.simulation.core.process import Machine, Process


def woken(seed: int) -> tuple[list[int], list[int]]:
    """Freeze a process for a second; return what arrives meanwhile and soon after, and what it
    does, each in its order."""
    loop = VirtualLoop(random.Random(seed))
    process = Process("frozen", Machine("frozen", "10.0.0.1"))
    arrived: list[int] = []
    done: list[int] = []

    def arrives(number: int) -> None:
        arrived.append(number)
        loop.soon_in(process, done.append, number)

    process.frozen_until = 1.0
    for number in range(40):
        loop.later_in(loop.outside, 0.962 + number * 0.001, arrives, number)
    loop.later_in(loop.outside, 2.0, loop.stop)
    loop.run_forever()
    loop.close()
    return arrived, done


def test_a_frozen_process_wakes_to_what_arrived_in_the_order_of_arrival() -> None:
    for seed in range(50):
        arrived, done = woken(seed)
        assert len(done) == 40
        assert done == arrived, f"seed {seed}"
