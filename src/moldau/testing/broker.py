"""The in-process broker."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    import moldau.broker.server as server
    from moldau.broker.settings.broker import BrokerSettings
    from moldau.local.secure import SecureFolder

START_WITHIN_S = 30.0
STOP_WITHIN_S = 30.0

T = TypeVar("T")
SettingValue = str | int | float | bool | Path | list[str] | tuple[str, ...]


class Broker:
    """The real broker, on its own event loop in its own thread.

    Settings are Kafka's, with underscores for dots (`Broker(num_partitions=3)`), or as they are in
    a mapping (`Broker({"num.partitions": 3})`). It listens on a free port of 127.0.0.1 and keeps
    its data in a temporary folder, which goes when the `with` block ends; a `data_dir` of your own
    stays. `stop` and `start` in between are a restart: same data, same port.

    With `secure` it is locked: SCRAM over TLS, and access control. `client_settings` is what a
    client needs, as the user `admin`, under Java's names; `librdkafka_settings` the same for
    confluent-kafka.

    Methods may be called from any thread but the broker's own. Nothing outside its thread is
    changed: no signal handlers, no garbage collector settings, no logging set-up.
    """

    def __init__(
        self,
        settings: Mapping[str, SettingValue] | None = None,
        *,
        data_dir: Path | str | None = None,
        secure: bool = False,
        **more: SettingValue,
    ) -> None:
        self._given = {key: as_text(value) for key, value in (settings or {}).items()}
        self._given |= {key.replace("_", "."): as_text(value) for key, value in more.items()}
        self._temporary = None
        if data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="moldau-")
            data_dir = self._temporary.name
        self.data_dir = Path(data_dir)
        self._secure: SecureFolder | None = None
        if secure:
            from moldau.local.secure import SecureFolder

            self._secure = SecureFolder(self.data_dir / "secure")
        self._address: tuple[str, int] | None = None
        # The addresses of all listeners, which a restart takes again.
        self._listeners = ""
        self._http = self._http_url = ""
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: server.Broker | None = None
        self._stopping: asyncio.Event | None = None
        self._problem: BaseException | None = None

    def __repr__(self) -> str:
        state = f"on {self.bootstrap}" if self._thread else "not running"
        return f"<moldau.testing.Broker {state}, data in {self.data_dir}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *problem: object) -> None:
        try:
            self.stop()
        finally:
            if self._temporary is not None:
                self._temporary.cleanup()

    @property
    def host(self) -> str:
        return self._bound[0]

    @property
    def port(self) -> int:
        return self._bound[1]

    @property
    def bootstrap(self) -> str:
        """The address for a client's `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    @property
    def http_url(self) -> str:
        """Where it serves HTTP, if it was given `http_listen`."""
        if not self._http:
            raise RuntimeError("this broker serves no HTTP; give it http_listen='127.0.0.1:0'")
        return self._http_url

    @property
    def client_settings(self) -> dict[str, str]:
        """What a client needs, under Java's names: its address and, if it is secure, who it is."""
        if self._secure is None:
            return {"bootstrap.servers": self.bootstrap}
        return self._secure.client_settings(self.bootstrap)

    @property
    def librdkafka_settings(self) -> dict[str, str]:
        """The same under the names that confluent-kafka takes."""
        from moldau.security.librdkafka import for_librdkafka

        return for_librdkafka(self.client_settings)

    @property
    def _bound(self) -> tuple[str, int]:
        if self._address is None:
            raise RuntimeError("the broker has no address before it has started; use `with`")
        return self._address

    def start(self) -> None:
        """Start, and return when the broker answers clients."""
        if self._thread is not None:
            raise RuntimeError("the broker is already running")
        settings = self._settings()
        ready = threading.Event()
        self._problem = None
        # A daemon, so that a test that forgets to stop its broker does not hang at exit.
        self._thread = threading.Thread(
            target=self._run, args=(settings, ready), name="moldau-broker", daemon=True
        )
        self._thread.start()
        if not ready.wait(START_WITHIN_S):
            raise TimeoutError(f"the broker did not start within {START_WITHIN_S:g} s")
        if self._server is None:
            self.stop()

    def stop(self) -> None:
        """Stop cleanly, as SIGTERM does; without effect on a broker that is not running."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if thread.is_alive() and self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join(STOP_WITHIN_S)
        if thread.is_alive():
            raise TimeoutError(f"the broker did not stop within {STOP_WITHIN_S:g} s")
        if self._problem is not None:
            raise self._problem

    def create_topic(self, name: str, partitions: int = 1, **configs: SettingValue) -> None:
        """Create a topic; its settings have underscores for dots: `retention_ms=1000`."""
        from moldau.cluster.decisions.assignment import NewTopic

        server = self._server
        if self._thread is None or server is None:
            raise RuntimeError("the broker is not running")
        texts = {key.replace("_", "."): as_text(value) for key, value in configs.items()}
        topic = NewTopic(name, partitions=partitions, configs=texts)
        (outcome,) = self._call(server.controller.create_topics([topic]))
        self._call(server.replicas.caught_up())
        if isinstance(outcome, Exception):
            raise outcome

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_WITHIN_S)

    def _settings(self) -> BrokerSettings:
        from moldau.broker.settings.broker import BrokerSettings

        texts = {"listeners": "127.0.0.1:0", **self._given, "log.dirs": str(self.data_dir)}
        if self._secure is not None:
            texts = (
                self._secure.broker_settings(0, "127.0.0.1:0", http="http.listen" in self._given)
                | self._given
                | {"log.dirs": str(self.data_dir)}
            )
        if self._listeners:
            texts["listeners"] = self._listeners
        if self._http:
            texts["http.listen"] = self._http
        return BrokerSettings.parse(texts)

    def _run(self, settings: BrokerSettings, ready: threading.Event) -> None:
        try:
            import uvloop

            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(settings, ready))
        except BaseException as problem:
            self._problem = problem
        finally:
            self._server = self._loop = self._stopping = None
            ready.set()

    async def _serve(self, settings: BrokerSettings, ready: threading.Event) -> None:
        from moldau.broker.server import Broker as Server
        from moldau.http.companion import companion_of

        server = Server(settings, companion=companion_of(settings))
        await server.start()
        self._address = (server.host, server.port)
        if server.companion is not None:
            self._http = server.companion.address
            self._http_url = server.companion.url
        self._listeners = ",".join(f"{each.name}://{each.address}" for each in server.listeners)
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._server = server
        ready.set()
        try:
            await self._stopping.wait()
        finally:
            await server.stop()


def as_text(value: SettingValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(value)
    return str(value)
