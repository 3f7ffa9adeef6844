"""The virtual loop does the steps of a process in the order in which they became due."""

from __future__ import annotations

import gc
import random
import warnings

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


def test_a_frozen_process_comes_to_what_it_has_received_before_its_timers() -> None:
    """As asyncio does: it looks at its sockets, and then at the clock."""
    loop = VirtualLoop(random.Random(1))
    process = Process("frozen", Machine("frozen", "10.0.0.1"))
    done: list[str] = []

    def begin() -> None:
        loop.call_later(0.5, done.append, "timer")
        process.frozen_until = loop.now_s + 1.0

    loop.soon_in(process, begin)
    loop.later_in(loop.outside, 0.8, loop.soon_in, process, done.append, "received")
    loop.later_in(loop.outside, 2.0, loop.stop)
    loop.run_forever()
    loop.close()
    assert done == ["received", "timer"]


def test_a_frozen_process_wakes_to_what_arrived_in_the_order_of_arrival() -> None:
    for seed in range(50):
        arrived, done = woken(seed)
        assert len(done) == 40
        assert done == arrived, f"seed {seed}"


def test_a_coroutine_that_is_begun_after_the_end_is_closed_at_once() -> None:
    """As by what others do when they are closed; or Python would complain that nobody awaits it."""

    async def work() -> None:
        raise AssertionError("it is over")

    loop = VirtualLoop(random.Random(1))
    loop.is_over = True
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        loop.create_task(work())
        loop.outside.belongings.clear()
        gc.collect()
    loop.close()
    assert not complaints
