"""One case on one broker: what was asked, and what came back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from conformance.connection import PATIENCE_S, Connection, HungUp, NoAnswer
from conformance.values import Symbols
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch
from moldau.wire.apis import Api
from moldau.wire.messages import encode_request

HUNG_UP = "(the broker closed the connection)"
NO_ANSWER = "(no answer)"
_CREATE_VERSION = 7
_METADATA_VERSION = 12
_POLL_S = 0.01
_SETTLE_S = 0.06


@dataclass(frozen=True, slots=True)
class Step:
    """One question and its answer; `api` is None for what is no request of the protocol."""

    what: str
    api: Api | None
    asked: Any
    answer: Any


@dataclass(slots=True)
class Broker:
    """A broker to ask, and the ranges of versions that it offers."""

    name: str
    host: str
    port: int
    node_id: int
    data_dir: Path
    # Where users log in by password; 0 if there is no such listener.
    locked_port: int = 0
    versions: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"


class Session:
    """What a case is given: a broker to ask, and a record of all that it answers.

    Both brokers get the same names, times and bytes; `now_ms` is the same moment for both.
    """

    def __init__(self, broker: Broker, scope: str, now_ms: int) -> None:
        self.broker = broker
        self.scope = scope
        self.now_ms = now_ms
        self.symbols = Symbols(broker.port, scope, broker.locked_port)
        self.steps: list[Step] = []
        self._names = 0
        self._connections: list[Connection] = []
        self._main = self.connect()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def connect(self) -> Connection:
        """A further connection to the broker, closed with the session."""
        connection = Connection(self.broker.host, self.broker.port)
        self._connections.append(connection)
        return connection

    def log_in(self, user: str) -> Connection:
        """A connection of somebody with a name, where the broker asks for one."""
        connection = Connection(self.broker.host, self.broker.locked_port)
        self._connections.append(connection)
        connection.ask(Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        token = f"\0{user}\0{user}-secret".encode()
        answer = connection.ask(Api.SASL_AUTHENTICATE, 1, {"auth_bytes": token})
        if int(answer.error_code) != 0:
            raise AssertionError(f"{user} could not log in: {answer}")
        return connection

    # Questions

    def ask(
        self,
        what: str,
        api: Api,
        version: int,
        *,
        via: Connection | None = None,
        patience_s: float = PATIENCE_S,
        **values: Any,
    ) -> Any:
        """Ask, and keep the answer for the comparison; kio's object, None if there was none."""
        try:
            answer = (via or self._main).ask(api, version, values, patience_s)
        except (HungUp, NoAnswer) as silence:
            shown = HUNG_UP if isinstance(silence, HungUp) else NO_ANSWER
            self._keep(what, api, values, shown)
            return None
        self._keep(what, api, values, self.symbols.plain(answer))
        return answer

    def send(
        self, what: str, api: Api, version: int, via: Connection, **values: Any
    ) -> Callable[..., Any]:
        """Ask without waiting; what is returned waits, and keeps the answer under `what`."""
        correlation_id = via.send(api, version, values)

        def receive(patience_s: float = PATIENCE_S) -> Any:
            try:
                answer = via.answer(api, version, correlation_id, patience_s)
            except (HungUp, NoAnswer) as silence:
                shown = HUNG_UP if isinstance(silence, HungUp) else NO_ANSWER
                self._keep(what, api, values, shown)
                return None
            self._keep(what, api, values, self.symbols.plain(answer))
            return answer

        return receive

    def _keep(self, what: str, api: Api, asked: dict[str, Any], answer: Any) -> None:
        self.steps.append(Step(what, api, asked, answer))

    def quietly(self, api: Api, version: int, **values: Any) -> Any:
        """Ask for what the case needs to know, without comparing the answer."""
        return self._main.ask(api, version, values)

    def frame(self, what: str, api: Api | None, data: bytes, patience_s: float = 2.0) -> None:
        """Send bytes on a connection of their own, and keep what comes of it."""
        connection = self.connect()
        try:
            answer: Any = connection.exchange(data, patience_s).hex()
        except HungUp:
            answer = HUNG_UP
        except NoAnswer:
            answer = NO_ANSWER
        finally:
            connection.close()
        self.steps.append(Step(what, api, data[:64].hex(), answer))

    def note(self, what: str, value: Any, api: Api | None = None) -> None:
        """Keep any value for the comparison."""
        self.steps.append(Step(what, api, None, self.symbols.plain(value)))

    # What most cases need

    def name(self, prefix: str = "t") -> str:
        """A name that no other case uses, the same on both brokers."""
        self._names += 1
        return f"{self.scope}-{prefix}{self._names}"

    def topic(self, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """A new topic whose leaders can be asked."""
        name = self.name()
        self.create(name, partitions, configs)
        return name

    def create(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        texts = [{"name": key, "value": value} for key, value in (configs or {}).items()]
        wanted = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        answer = self.quietly(
            Api.CREATE_TOPICS,
            _CREATE_VERSION,
            topics=[wanted | {"configs": texts}],
            timeout=10_000,
        )
        code = int(answer.topics[0].error_code)
        if code != 0:
            raise AssertionError(f"{name} could not be created: {answer.topics[0]}")
        self.symbols.know("topic id", answer.topics[0].topic_id, f"id of {name}")
        self.wait_for_topic(name, partitions)

    def wait_for_topic(self, name: str, partitions: int) -> None:
        """Until all partitions have leaders, which Kafka sees to in the background."""

        def ready() -> bool:
            topic = self.metadata(name)
            found = [each for each in topic.partitions if each.leader_id >= 0]
            if int(topic.error_code) != 0 or len(found) != partitions:
                return False
            # Kafka names a leader some moments before that leader serves.
            asked = [
                {"partition_index": n, "timestamp": -1, "current_leader_epoch": -1}
                for n in range(partitions)
            ]
            answer = self.quietly(
                Api.LIST_OFFSETS,
                5,
                replica_id=-1,
                topics=[{"name": name, "partitions": asked}],
            )
            return all(int(each.error_code) == 0 for each in answer.topics[0].partitions)

        self.until(ready, f"leaders of {name}")

    def wait_for_no_topic(self, name: str) -> None:
        self.until(lambda: int(self.metadata(name).error_code) == 3, f"end of {name}")

    def metadata(self, name: str) -> Any:
        answer = self.quietly(
            Api.METADATA,
            _METADATA_VERSION,
            topics=[{"name": name}],
            allow_auto_topic_creation=False,
        )
        return answer.topics[0]

    def topic_id(self, name: str) -> UUID:
        found: UUID = self.metadata(name).topic_id
        return found

    def settle(self) -> None:
        """Give a change of settings the moment that Kafka takes to show it."""
        time.sleep(_SETTLE_S)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what} within {PATIENCE_S:g} s")
            time.sleep(_POLL_S)

    def batch(
        self,
        *values: bytes | None,
        key: bytes | None = b"key",
        codec: Codec = Codec.NONE,
        timestamp: int | None = None,
        step_ms: int = 1,
        **more: Any,
    ) -> bytes:
        """A batch of these values, as a producer sends it; one record a millisecond."""
        first = self.now_ms - 60_000 if timestamp is None else timestamp
        records = [
            Record(place, first + step_ms * place, key, value, (("h", b"1"),))
            for place, value in enumerate(values)
        ]
        return bytes(build_batch(records, codec, **more))

    def fill(self, name: str, *batches: bytes, partition: int = 0) -> None:
        """Append batches to a partition, which must take them."""
        for batch in batches:
            answer = self.quietly(
                Api.PRODUCE,
                9,
                acks=-1,
                timeout=10_000,
                topic_data=[
                    {"name": name, "partition_data": [{"index": partition, "records": batch}]}
                ],
            )
            result = answer.responses[0].partition_responses[0]
            if int(result.error_code) != 0:
                raise AssertionError(f"{name}-{partition} refused a batch: {result}")


def body(api: Api, version: int, **values: Any) -> bytes:
    """The bytes of a request without its header."""
    return encode_request(api, version, values)
