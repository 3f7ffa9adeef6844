"""The brokers that are compared, behind one face: Moldau, and Kafka in its two set-ups."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.kafka.broker import STOP_TIMEOUT_S, KafkaBroker, free_ports
from bench.kafka.comparison import MOLDAU
from bench.kafka.scale import Scale
from bench.kafka.setup import STOCK, Setup, tuned
from moldau.bench.broker import BrokerUnderTest
from moldau.bench.child import Children
from moldau.bench.errors import BenchFailed
from moldau.bench.frames import api_versions_request
from moldau.bench.workbench import Workbench

_ANSWER_TIMEOUT_S = 90.0
# Deleted topics are gone before the next sample, on both sides alike; no wait before a rebalance,
# nor between two of them.
BOTH = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "log.segment.delete.delay.ms": "1000",
}


class KafkaUnderTest(BrokerUnderTest):
    """Kafka's broker with everything that the measurements ask of Moldau's."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self.data_dir = broker.data_dir
        self.host, self.port = broker.host, broker.port
        self._admin = None

    def start(self) -> None:
        # A client that knew an earlier life would ask with that one's leader epoch.
        self._admin = None
        self.broker.start()
        assert self.broker.child is not None
        self.child = self.broker.child
        self.pid = self.broker.pid

    def wait_ready(self) -> None:
        self.broker.wait_ready()

    def stop_cleanly(self) -> float:
        self._admin = None
        started = time.monotonic()
        self.child.end(STOP_TIMEOUT_S, expected=(0, 128 + 15))
        return time.monotonic() - started

    def discard(self) -> None:
        self._admin = None
        self.broker.discard()


class MoldauUnderTest(BrokerUnderTest):
    """Moldau's broker on a port that is known before it is ready, and again on the same data."""

    def __init__(self, children: Children, folder: Path) -> None:
        self._children = children
        self._folder = folder
        self.host, self.port = "127.0.0.1", free_ports(1)[0]

    def start(self) -> None:
        settings = [f"{key}={value}" for key, value in BOTH.items()]
        self.start_with(f"{self.host}:{self.port}", settings)

    def start_with(self, listen: str, settings: list[str]) -> None:
        host, port = self.host, self.port
        super().__init__(self._children, self._folder, listen, settings)
        self.host, self.port = host, port


UnderTest = KafkaUnderTest | MoldauUnderTest


@dataclass(frozen=True, slots=True)
class Side:
    """One of those that are compared, by name; `make` gives a broker that is yet to start."""

    name: str
    make: Callable[[], UnderTest]
    setup: Setup | None = None


class Bench:
    """What every measurement is given."""

    def __init__(
        self, scale: Scale, folder: Path, children: Children, say: Callable[[str], None]
    ) -> None:
        self.scale = scale
        self.folder = folder
        self.children = children
        self.say = say
        self.machine = Workbench(scale.machine, folder, children, say)
        self._brokers = 0
        setups = (STOCK, tuned())
        self.sides = [
            Side(MOLDAU, self._moldau),
            *(Side(f"Kafka {setup.name}", self._maker(setup), setup) for setup in setups),
        ]

    def _moldau(self) -> UnderTest:
        return MoldauUnderTest(self.children, self.new_folder())

    def _maker(self, setup: Setup) -> Callable[[], UnderTest]:
        def make() -> UnderTest:
            broker = KafkaBroker(self.children, self.new_folder(), setup, settings=BOTH)
            return KafkaUnderTest(broker)

        return make

    def new_folder(self) -> Path:
        """A path not used before, where nothing is yet."""
        self._brokers += 1
        return self.folder / f"broker-{self._brokers}"

    @contextmanager
    def brokers(self) -> Iterator[dict[str, UnderTest]]:
        """A ready broker of every side, all at once, so that runs can take turns."""
        with ExitStack() as stack:
            started = {}
            for side in self.sides:
                broker = side.make()
                broker.start()
                stack.callback(broker.discard)
                started[side.name] = broker
            for broker in started.values():
                broker.wait_ready()
            for broker in started.values():
                broker.wait_quiet()
            yield started

    def new_topic(self, broker: UnderTest, partitions: int = 1) -> str:
        """A new topic that can be produced to."""
        topic = self.machine.new_topic()
        broker.create_topic(topic, partitions)
        wait_for_leaders(broker, topic, partitions)
        return topic

    def turns(self, what: str, brokers: Mapping[str, UnderTest]) -> Iterator[tuple[str, UnderTest]]:
        """Every side in turn, as often as the scale says; another one begins each time."""
        names = list(brokers)
        for sample in range(self.scale.repeats):
            shift = sample % len(names)
            for name in names[shift:] + names[:shift]:
                self.say(f"{what}: {name}, {sample + 1} of {self.scale.repeats}")
                yield name, brokers[name]


def wait_for_leaders(broker: BrokerUnderTest, topic: str, partitions: int) -> None:
    """Until every partition says where it ends: Kafka creates them after it has answered."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + _ANSWER_TIMEOUT_S
    while True:
        try:
            broker.messages_in(topic, partitions)
            return
        except KafkaException as problem:
            if time.monotonic() > deadline:
                who = type(broker).__name__
                raise BenchFailed(f"{who}: {topic} has no leaders: {problem}") from problem
            time.sleep(0.05)


def wait_for_answer(host: str, port: int) -> None:
    """Until an ApiVersions request on a fresh connection is answered."""
    request = api_versions_request()
    deadline = time.monotonic() + _ANSWER_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((host, port), _ANSWER_TIMEOUT_S) as sock:
                sock.sendall(request)
                if len(sock.recv(4, socket.MSG_WAITALL)) == 4:
                    return
        except ConnectionError:
            time.sleep(0.001)
    raise BenchFailed(f"no answer from {host}:{port} within {_ANSWER_TIMEOUT_S:g} s")
