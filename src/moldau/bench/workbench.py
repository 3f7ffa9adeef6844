"""The workbench of a measurement: the scale, a folder, the processes, the machine's limits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from moldau.bench.ballast import Ballast
from moldau.bench.broker import READY_TIMEOUT_S, BrokerUnderTest
from moldau.bench.child import Child, Children
from moldau.bench.scale import Scale
from moldau.bench.tasks import ByteFlow, Flow, Loopback, Produce

# The overhead of a message in a record batch, rounded up.
_RECORD_OVERHEAD = 16


class Workbench:
    """Starts brokers and load for the measurements; `say` tells the user what is going on.

    With a `command`, brokers are those of another installed `moldau`.
    """

    def __init__(
        self,
        scale: Scale,
        folder: Path,
        children: Children,
        say: Callable[[str], None],
        command: Sequence[str] = (),
    ) -> None:
        self.scale = scale
        self.folder = folder
        self.children = children
        self.say = say
        self._command = command
        self._brokers = 0
        self._topics = 0
        self._ballast: Ballast | None = None

    def start_broker(
        self,
        address: str = "127.0.0.1:0",
        data_dir: Path | None = None,
        settings: Sequence[str] = (),
    ) -> BrokerUnderTest:
        """Return a broker that may not be ready yet, on a new data folder unless one is given."""
        self._brokers += 1
        folder = data_dir or self.folder / f"data-{self._brokers}"
        return BrokerUnderTest(self.children, folder, address, settings, self._command)

    @contextmanager
    def broker(self) -> Iterator[BrokerUnderTest]:
        """Yield a ready broker with no topics."""
        broker = self.start_broker()
        try:
            broker.wait_ready()
            yield broker
        finally:
            broker.discard()

    @contextmanager
    def stopped_topic(
        self, configs: Mapping[str, str], partitions: int = 1
    ) -> Iterator[tuple[Path, str]]:
        """Yield the data folder of a broker that has stopped, and the empty topic that is in it."""
        broker = self.start_broker()
        try:
            broker.wait_ready()
            topic = self.new_topic()
            broker.create_topic(topic, partitions, configs)
            broker.stop_cleanly()
            yield broker.data_dir, topic
        finally:
            broker.discard()

    @contextmanager
    def null_broker(self, message_size: int, partitions: int = 1) -> Iterator[tuple[str, int]]:
        """Address and process id of a broker that does nothing."""
        words = ["-m", "moldau.bench.null_broker", str(message_size), str(partitions)]
        child: Child = self.children.start([sys.executable, *words])
        try:
            yield child.line(READY_TIMEOUT_S).rpartition(" ")[2], child.pid
        finally:
            child.stop()

    def produce(self, task: Produce) -> Flow:
        """Run `task` with warm memory for all that it produces, where the scale asks for it."""
        messages = task.count + task.warm_up
        with self.warm_memory(messages * (task.size + _RECORD_OVERHEAD), task.broker_pid):
            return self.children.run(task, Flow)

    @contextmanager
    def warm_memory(self, wanted: int, *pids: int) -> Iterator[None]:
        """Keep that many bytes warm for what `pids` write inside the block, if the scale asks for
        it.
        """
        if not self.scale.warm_memory:
            yield
            return
        if self._ballast is None:
            self._ballast = Ballast(self.children)
        with self._ballast.under(wanted, *pids):
            yield

    def new_topic(self) -> str:
        """Return a name not used before in this run."""
        self._topics += 1
        return f"bench{self._topics}"

    def loopback_bytes_per_s(self) -> float:
        task = Loopback(seconds=self.scale.loopback_s)
        return self.children.run(task, ByteFlow).bytes_per_s
