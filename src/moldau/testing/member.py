"""A member of a cluster: one broker over all its lives, with its ports, its data and its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moldau.local.ports import HOST
from moldau.local.process import BrokerProcess, broker_command
from moldau.peer.connection import Connection
from moldau.peer.errors import Refused
from moldau.testing.view import View, view_of
from moldau.wire.apis import Api
from moldau.wire.errors import Error

_CLIENT_ID = "moldau-testing"
_ASK_WITHIN_S = 3.0
_CREATE_WITHIN_MS = 30_000


@dataclass(slots=True)
class Member:
    """A broker that keeps its place over restarts; `process` is its present life, if any.

    It listens on `port`. Clients and other brokers reach it at `advertised_port`, which is another
    one where a network lies in between, as do the addresses of `zookeeper`.
    """

    broker: int
    port: int
    advertised_port: int
    zookeeper: str
    data_dir: Path
    log: Path
    process: BrokerProcess | None = None

    @property
    def serves(self) -> bool:
        """Whether its process runs and is not frozen."""
        process = self.process
        return process is not None and process.is_running and not process.is_frozen

    @property
    def life(self) -> BrokerProcess:
        """Its process; RuntimeError if it has none."""
        if self.process is None:
            raise RuntimeError(f"broker {self.broker} is not running")
        return self.process

    def launch(
        self, settings: Mapping[str, str], environment: Mapping[str, str] | None
    ) -> BrokerProcess:
        """Start its process without waiting until it serves."""
        if self.process is not None and self.process.is_running:
            raise RuntimeError(f"broker {self.broker} is already running")
        command = broker_command(
            self.broker,
            listen=f"{HOST}:{self.port}",
            data_dir=self.data_dir,
            zookeeper=self.zookeeper,
            advertise=f"{HOST}:{self.advertised_port}",
            settings=settings,
        )
        with self.log.open("ab") as log:
            self.process = BrokerProcess(command, log, self.log, environment)
        return self.process

    def view(self) -> View:
        """Return the cluster as this broker describes it, asked past any cut; PeerError if it does
        not."""
        with Connection(
            HOST,
            self.port,
            _CLIENT_ID,
            timeout_s=_ASK_WITHIN_S,
            connect_timeout_s=_ASK_WITHIN_S,
        ) as connection:
            return view_of(connection.ask(Api.METADATA, {"topics": None}))

    def has_created(
        self, topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> bool:
        """Ask it to create a topic: whether it is there now, or may be the next time.

        RuntimeError if it never will be.
        """
        wanted = {
            "name": topic,
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        with Connection(HOST, self.port, _CLIENT_ID, connect_timeout_s=_ASK_WITHIN_S) as connection:
            answer = connection.ask(
                Api.CREATE_TOPICS,
                {"topics": [wanted], "timeout": _CREATE_WITHIN_MS, "validate_only": False},
            )
        (result,) = answer.topics
        code = int(result.error_code)
        if code in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
            return True
        problem = Refused(code, f"topic {topic!r}", result.error_message)
        if code == Error.NOT_CONTROLLER or problem.is_retriable:
            return False
        raise RuntimeError(str(problem))

    def log_tail(self, most: int) -> str:
        """Return the end of what it has logged, at most so many characters."""
        return self.log.read_text("utf-8", "replace")[-most:] if self.log.exists() else ""
