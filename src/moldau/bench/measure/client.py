"""moldau.client beside confluent-kafka, which it is built on: the cost of its convenience."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from moldau.bench.broker import BrokerUnderTest
from moldau.bench.results import Row, Target, figure
from moldau.bench.tasks import ClientProgram, Flow
from moldau.bench.workbench import Workbench

_MESSAGE_SIZE = 100
_WARM_UP_SHARE = 10


class Contest(NamedTuple):
    """A program on moldau.client and one on confluent-kafka that do the same thing."""

    title: str
    ours: str
    theirs: str
    least_share: float


_PRODUCING = (
    Contest("fire and forget", "post", "produce_loop", 90),
    Contest("MessageSet of values", "send_sets_of_values", "produce_loop", 90),
    Contest("MessageSet of Messages", "send_sets_of_messages", "produce_loop", 90),
    Contest("a result per message", "send", "produce_with_callback", 35),
)
_ITERATING = Contest("iterating a Consumer", "iterate", "consume_loop", 80)


def measure_client(bench: Workbench) -> Iterator[Row]:
    with bench.broker() as broker:
        for contest in _PRODUCING:
            topic = bench.new_topic()
            broker.create_topic(topic)
            yield _row(bench, broker, topic, contest)
            count = bench.scale.client_messages
            broker.expect_messages(topic, 2 * _pairs(bench) * (count + _warm_up(count)))
            if contest is not _PRODUCING[-1]:
                broker.delete_topic(topic)
                broker.wait_quiet()
        yield _row(bench, broker, topic, _ITERATING)


def _row(bench: Workbench, broker: BrokerUnderTest, topic: str, contest: Contest) -> Row:
    ours: list[Flow] = []
    theirs: list[Flow] = []
    for sample in range(_pairs(bench)):
        bench.say(f"client, {contest.title}: sample {sample + 1} of {_pairs(bench)}")
        pair = [(contest.ours, ours), (contest.theirs, theirs)]
        # Each goes first as often as the other, so that a machine growing slower favours neither.
        for program, flows in pair if sample % 2 == 0 else reversed(pair):
            count = bench.scale.client_messages
            task = ClientProgram(
                broker.bootstrap,
                topic,
                broker.pid,
                program,
                _MESSAGE_SIZE,
                count,
                warm_up=_warm_up(count),
            )
            flows.append(bench.children.run(task, Flow))
    shares = [100 * b.seconds / a.seconds for a, b in zip(ours, theirs, strict=True)]
    return Row(
        "client",
        f"client, {contest.title}",
        (
            figure("messages", "msg/s", [f.messages / f.seconds for f in ours]),
            figure("confluent-kafka", "msg/s", [f.messages / f.seconds for f in theirs]),
            figure(
                "share of confluent-kafka", "%", shares, Target(contest.least_share, at_least=True)
            ),
            figure("client CPU per message", "us", _costs(ours)),
            figure("confluent-kafka's CPU per message", "us", _costs(theirs)),
        ),
    )


def _pairs(bench: Workbench) -> int:
    """More and shorter ones than elsewhere: two busy programs on few cores vary by a fifth."""
    return 2 * bench.scale.repeats + 1


def _warm_up(count: int) -> int:
    return max(1, count // _WARM_UP_SHARE)


def _costs(flows: list[Flow]) -> list[float]:
    return [flow.client_cpu_s * 1e6 / flow.messages for flow in flows]
