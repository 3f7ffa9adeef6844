"""The broker under test: a separate process, started as users start it."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.bench.child import Child, Children
from moldau.bench.errors import BenchFailed
from moldau.bench.proc import memory_mib, wait_quiet
from moldau.cluster.state.internal_topics import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

READY_TIMEOUT_S = 30
_ADMIN_TIMEOUT_S = 120
_STOP_TIMEOUT_S = 120


def moldau_command() -> list[str]:
    """Return the installed `moldau` of this interpreter."""
    script = Path(sys.executable).with_name("moldau")
    return [str(script)] if script.exists() else [sys.executable, "-m", "moldau"]


class BrokerUnderTest:
    """A running broker on a data folder of its own."""

    def __init__(
        self,
        children: Children,
        folder: Path,
        address: str = "127.0.0.1:0",
        settings: Sequence[str] = (),
        command: Sequence[str] = (),
    ) -> None:
        self.data_dir = folder
        words = [*(command or moldau_command())]
        words += ["broker", "--listen", address, "--data-dir", str(folder)]
        for setting in settings:
            words += ["--set", setting]
        self.child: Child = children.start(words)
        self.pid = self.child.pid
        self._admin: AdminClient | None = None
        self.host, self.port = "", 0

    def wait_ready(self) -> None:
        line = self.child.line(READY_TIMEOUT_S)
        head, _, address = line.rpartition(" ")
        if not head.endswith(" ready on"):
            raise BenchFailed(f"the broker's first line is {line!r}")
        self.host, _, port = address.rpartition(":")
        self.port = int(port)

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        return self._admin

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        from confluent_kafka.admin import NewTopic

        topic = NewTopic(name, num_partitions=partitions, config=dict(configs or {}))
        self.admin.create_topics([topic], request_timeout=_ADMIN_TIMEOUT_S)[name].result()

    def alter_topic(self, name: str, configs: Mapping[str, str]) -> None:
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in configs.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result()

    def delete_topic(self, name: str) -> None:
        self.admin.delete_topics([name], request_timeout=_ADMIN_TIMEOUT_S)[name].result()

    def messages_in(self, name: str, partitions: int = 1) -> int:
        """Return how many messages a topic has taken since its creation."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        asked = {TopicPartition(name, index): OffsetSpec.latest() for index in range(partitions)}
        answers = self.admin.list_offsets(asked, request_timeout=_ADMIN_TIMEOUT_S)
        return sum(future.result().offset for future in answers.values())

    def expect_messages(self, name: str, wanted: int, partitions: int = 1) -> None:
        """Fail if `name` does not hold exactly what the load says it sent."""
        found = self.messages_in(name, partitions)
        if found != wanted:
            raise BenchFailed(f"{name} holds {found} messages, {wanted} were acknowledged")

    def commits_taken(self, group: str) -> int:
        """Return how many records `__consumer_offsets` has taken; created for `group` if need
        be."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        asked = [ConsumerGroupTopicPartitions(group)]
        answers = self.admin.list_consumer_group_offsets(asked, request_timeout=_ADMIN_TIMEOUT_S)
        answers[group].result()
        name = CONSUMER_OFFSETS.name
        topics = self.admin.list_topics(name, timeout=_ADMIN_TIMEOUT_S).topics
        return self.messages_in(name, len(topics[name].partitions))

    def segment_files(self, topic: str) -> list[Path]:
        return sorted(self.data_dir.glob(f"{topic}-[0-9]*/*.log"))

    def memory_mib(self) -> tuple[float, float]:
        return memory_mib(self.pid)

    def wait_quiet(self) -> None:
        """Wait until the broker has nothing to do."""
        wait_quiet((self.pid,), 0.02)

    def stop_cleanly(self) -> float:
        """Seconds that a clean stop takes; the data stays."""
        self._admin = None
        started = time.monotonic()
        self.child.end(_STOP_TIMEOUT_S)
        return time.monotonic() - started

    def discard(self) -> None:
        """End the broker at once and remove its data."""
        self._admin = None
        self.child.stop()
        shutil.rmtree(self.data_dir, ignore_errors=True)
