"""Pairs: two kinds of brokers that take turns, so that whatever else the machine does hits both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from moldau.bench.broker import BrokerUnderTest
from moldau.bench.workbench import Workbench

Prepare = Callable[[BrokerUnderTest], None]
Cost = Callable[[Workbench, BrokerUnderTest], float]


def as_it_is(broker: BrokerUnderTest) -> None:
    """Nothing is to be done to it before it is measured."""


def costs_in_turns(
    bench: Workbench,
    title: str,
    settings: tuple[Sequence[str], Sequence[str]],
    cost: Cost,
    *,
    preparations: tuple[Prepare, Prepare] = (as_it_is, as_it_is),
    beside: Callable[[], AbstractContextManager[None]] = nullcontext,
    samples_per_repeat: int = 1,
) -> tuple[list[float], list[float]]:
    """Return what each kind costs, sample by sample, after a first run that warms it up.

    Two processes of the same program differ by several percent, each for all of its life: so each
    sample has others. `beside` goes on while costs are taken.
    Costs that scatter more than what is looked for want more samples per repeat.
    """
    costs: tuple[list[float], list[float]] = ([], [])
    samples = bench.scale.repeats * samples_per_repeat
    for sample in range(samples):
        bench.say(f"{title}: sample {sample + 1} of {samples}")
        brokers = [bench.start_broker(settings=each) for each in settings]
        try:
            for broker, prepare in zip(brokers, preparations, strict=True):
                broker.wait_ready()
                prepare(broker)
                cost(bench, broker)
            with beside():
                for number in (0, 1) if sample % 2 else (1, 0):
                    costs[number].append(cost(bench, brokers[number]))
        finally:
            for broker in brokers:
                broker.discard()
    return costs
