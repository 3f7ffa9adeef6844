"""A whole cluster on this machine, to break and to inspect."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from moldau.local.ensemble import Ensemble
from moldau.local.ports import HOST, free_ports
from moldau.local.process import STOP_WITHIN_S
from moldau.peer.errors import PeerError
from moldau.testing.broker import SettingValue, as_text
from moldau.testing.member import Member
from moldau.testing.network import Network
from moldau.testing.view import View, majority
from moldau.testing.waiting import WITHIN_S, until

_LOG_TAIL = 6000

# A cluster for tests notices failures sooner than one in a data centre should, and is small.
QUICK_SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "zookeeper.session.timeout.ms": "2000",
    "zookeeper.connection.timeout.ms": "60000",
    "replica.lag.time.max.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
}


class Cluster:
    """Brokers in processes of their own, and the ZooKeeper ensemble in which they meet.

        with Cluster(brokers=3) as cluster:
            cluster.create_topic("orders", partitions=3)
            cluster.kill(cluster.leader_of("orders", 0))

    Brokers are numbered from 0 and keep their ports and data over restarts. `ensemble` is how many
    ZooKeeper servers to start, or an Ensemble that is already running, where the cluster takes a
    place of its own. Settings are those of a broker, with underscores for dots as keywords or as
    they are in a mapping; by default failures are noticed within two seconds.

    `environment` is what brokers find in their environment besides what this process has, such as a
    PYTHONPATH to another version of Moldau. `environments` has it for each broker, to be changed
    between its lives.

    With `can_be_cut` all connections run through a `Network`, so that `cut` and `heal` work:
    slower, and on Linux only. Everything ends with the `with` block, frozen brokers too; a `folder`
    of your own stays, with the brokers' data and logs. If the block fails, the ends of the logs are
    printed on stderr. For one thread.
    """

    def __init__(
        self,
        brokers: int = 3,
        ensemble: int | Ensemble = 1,
        settings: Mapping[str, SettingValue] | None = None,
        *,
        folder: Path | str | None = None,
        can_be_cut: bool = False,
        racks: Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
        **more: SettingValue,
    ) -> None:
        self._settings = dict(QUICK_SETTINGS)
        self._settings |= {key: as_text(value) for key, value in (settings or {}).items()}
        self._settings |= {key.replace("_", "."): as_text(value) for key, value in more.items()}
        self._racks = list(racks)
        self.environments = {broker: dict(environment or {}) for broker in range(brokers)}
        self._first_brokers = brokers
        self._temporary = None
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="moldau-cluster-")
            folder = self._temporary.name
        self.folder = Path(folder)
        self._is_own_ensemble = isinstance(ensemble, int)
        self.ensemble = (
            Ensemble(ensemble, self.folder / "zookeeper") if isinstance(ensemble, int) else ensemble
        )
        # Clusters that share an ensemble must not meet; in the folder's next life it is the same.
        place = "-".join(self.folder.absolute().parts[-2:])
        self._chroot = "" if self._is_own_ensemble else f"/{place}"
        self._network = Network() if can_be_cut else None
        self._members: dict[int, Member] = {}

    def __repr__(self) -> str:
        return f"<moldau.testing.Cluster of {len(self._members)} in {self.folder}>"

    def __enter__(self) -> Self:
        atexit.register(self.close)
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            if self._is_own_ensemble:
                self.ensemble.start()
            for broker in range(self._first_brokers):
                self._add_member(broker)
            self.start(*self._members)
            everybody = set(self._members)
            self.wait_until(
                lambda: all(self.view(broker).brokers == everybody for broker in everybody),
                "every broker to know all others",
            )
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> None:
        if kind is not None:
            print(self.logs(), file=sys.stderr)  # noqa: T201
        self.close()

    @property
    def brokers(self) -> list[int]:
        """All brokers that there are, running or not."""
        return list(self._members)

    @property
    def running(self) -> list[int]:
        """The brokers whose processes run and are not frozen."""
        return [i for i, member in self._members.items() if member.serves]

    @property
    def bootstrap(self) -> str:
        """The addresses for a client's `bootstrap.servers`."""
        return ",".join(self.address(broker) for broker in self._members)

    @property
    def zookeeper(self) -> str:
        """Where the cluster's ZooKeeper is: HOST:PORT,.../CHROOT"""
        return self.ensemble.hosts + self._chroot

    def address(self, broker: int) -> str:
        """Return where clients reach a broker."""
        return f"{HOST}:{self._members[broker].advertised_port}"

    def data_dir(self, broker: int) -> Path:
        return self._members[broker].data_dir

    def log(self, broker: int) -> Path:
        """Return the file with what the broker has logged in all its lives."""
        return self._members[broker].log

    def logs(self, most: int = _LOG_TAIL) -> str:
        """Return the end of every broker's log, for people."""
        tails = {broker: member.log_tail(most) for broker, member in self._members.items()}
        return "\n".join(f"--- broker {broker}\n{tail}" for broker, tail in tails.items() if tail)

    def pid(self, broker: int) -> int:
        return self._members[broker].life.pid

    # -- what can happen to brokers

    def start(self, *brokers: int) -> None:
        """Start brokers, all at once, and return when each of them serves."""
        for broker in brokers:
            self._launch(broker)
        for broker in brokers:
            self._members[broker].life.wait_ready()

    def stop(self, *brokers: int) -> None:
        """Stop brokers cleanly (SIGTERM), all at once, and wait until they have ended."""
        for broker in brokers:
            self._members[broker].life.ask_to_stop()
        for broker in brokers:
            self._members[broker].life.wait_stopped()
            self._ended(broker)

    def kill(self, *brokers: int) -> None:
        """End brokers as kill -9 does."""
        for broker in brokers:
            process = self._members[broker].life
            # First, so that a client that retries at once is refused, as by a dead process.
            self._refuse(broker)
            process.kill()
            self._ended(broker)

    def freeze(self, broker: int) -> None:
        """Stop a broker's process in its tracks (SIGSTOP), until `thaw`."""
        self._members[broker].life.freeze()

    def thaw(self, broker: int) -> None:
        self._members[broker].life.thaw()

    def wipe(self, broker: int) -> None:
        """Remove everything that a broker that is not running has on disk."""
        if self._members[broker].process is not None:
            raise RuntimeError(f"broker {broker} is running; stop or kill it first")
        folder = self._members[broker].data_dir

        def is_gone() -> bool:
            # The worker of a killed broker may write a moment longer, until it notices.
            shutil.rmtree(folder, ignore_errors=True)
            return not folder.exists()

        until(is_gone, f"{folder} to be removed")

    def add(self) -> int:
        """Start one more broker; its number."""
        broker = max(self._members, default=-1) + 1
        self._add_member(broker)
        self.start(broker)
        return broker

    def cut(self, broker: int, *, from_clients: bool = True) -> None:
        """Cut a broker off the network: from the others, from ZooKeeper and from clients.

        Nothing is refused or closed; all is silent. With `from_clients` false only the clients
        still reach it. It needs `can_be_cut`.
        """
        self._cables.cut(broker, from_clients=from_clients)

    def heal(self, broker: int) -> None:
        """End a cut; what was sent meanwhile arrives now."""
        self._cables.heal(broker)
        if self._members[broker].process is None:
            self._refuse(broker)

    def slow(self, broker: int, delay_s: float) -> None:
        """Make all that a broker sends and is sent arrive so much later; 0 ends it. It needs
        `can_be_cut`."""
        self._cables.slow(broker, delay_s)

    def break_connections(self, broker: int) -> None:
        """Break all connections from and to a broker, which may be made again at once.

        What was on its way to the side that was connected to still arrives there, so that requests
        may overtake each other where links are slow. It needs `can_be_cut`.
        """
        self._cables.break_connections(broker)

    def close(self) -> None:
        """End everything; without effect when it has ended already."""
        atexit.unregister(self.close)
        try:
            self._end_brokers()
        finally:
            if self._network is not None:
                self._network.close()
            if self._is_own_ensemble:
                self.ensemble.close()
            if self._temporary is not None:
                self._temporary.cleanup()

    def _end_brokers(self) -> None:
        running = [each.process for each in self._members.values() if each.process is not None]
        # Data that stays is left as a clean stop leaves it; else nobody needs to wait for it.
        if self._temporary is None:
            gentle = [process for process in running if not process.is_frozen]
            for process in gentle:
                process.ask_to_stop()
            with suppress(TimeoutError):
                until(lambda: not any(each.is_running for each in gentle), "", STOP_WITHIN_S)
        for process in running:
            process.kill()
        for member in self._members.values():
            member.process = None

    # -- looking at it

    def view(self, broker: int) -> View:
        """Return the cluster as this broker describes it, asked past any cut; PeerError if it does
        not."""
        return self._members[broker].view()

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the running broker that leads a partition, as most see it; waits for one."""
        return self._agreed(
            lambda view: view.leader_of(topic, partition), f"a leader of {topic}-{partition}"
        )

    def controller(self) -> int:
        """Return the running broker that is the controller, as most see it; waits for one."""

        def seen(view: View) -> int | None:
            return view.controller if view.controller in view.brokers else None

        return self._agreed(seen, "a controller")

    def wait_until(self, is_so: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> None:
        """Return when something is so; TimeoutError names `what` was waited for."""
        # A broker that is just starting or ending does not answer: ask again.
        until(is_so, what, within_s, ignoring=PeerError)

    def wait_until_in_sync(
        self, *topics: str, brokers: Iterable[int] = (), within_s: float = WITHIN_S
    ) -> None:
        """Return when every running broker sees all of them registered, and all partitions (of
        these topics, or of all) led and in sync on all their replicas.

        Given `brokers`, only those replicas have to be in sync.
        """
        wanted = frozenset(brokers)

        def in_sync() -> bool:
            running = frozenset(self.running)
            views = [self.view(broker) for broker in running]
            return all(
                running <= view.brokers and view.is_in_sync(running, topics, wanted)
                for view in views
            )

        self.wait_until(in_sync, f"all replicas to be in sync: {self._shown()}", within_s)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = -1,
        **configs: SettingValue,
    ) -> None:
        """Create a topic and return when every running broker knows it and who leads it.

        Without a number it has as many replicas as there are brokers, three at most. Settings have
        underscores for dots: `min_insync_replicas=2`.
        """
        if replication_factor < 0:
            replication_factor = min(3, len(self.running))
        texts = {key.replace("_", "."): as_text(value) for key, value in configs.items()}

        def is_created() -> bool:
            asked = self._members[self.running[0]]
            return asked.has_created(name, partitions, replication_factor, texts)

        self.wait_until(is_created, f"topic {name}")
        self.wait_until(
            lambda: all(self.view(each).is_led(name, partitions) for each in self.running),
            f"leaders of {name}",
        )

    # --

    @property
    def _cables(self) -> Network:
        if self._network is None:
            raise RuntimeError("only a Cluster(can_be_cut=True) can do this")
        return self._network

    def _add_member(self, broker: int) -> None:
        data_dir = self.folder / f"broker-{broker}"
        log = self.folder / f"broker-{broker}.log"
        if self._network is None:
            (port,) = free_ports(1)
            self._members[broker] = Member(broker, port, port, self.zookeeper, data_dir, log)
            return
        port, advertised, *cables = free_ports(2 + len(self.ensemble))
        for server, cable in enumerate(cables):
            real_port = int(self.ensemble.host(server).rpartition(":")[2])
            self._network.from_broker(cable, broker, real_port)
        hosts = ",".join(f"{HOST}:{cable}" for cable in cables) + self._chroot
        self._members[broker] = Member(broker, port, advertised, hosts, data_dir, log)

    def _launch(self, broker: int) -> None:
        settings = dict(self._settings)
        if broker < len(self._racks):
            settings["broker.rack"] = self._racks[broker]
        member = self._members[broker]
        process = member.launch(settings, self.environments.get(broker))
        if self._network is not None:
            self._network.to_broker(member.advertised_port, broker, member.port, process.pid)

    def _ended(self, broker: int) -> None:
        self._members[broker].process = None
        self._refuse(broker)

    def _refuse(self, broker: int) -> None:
        # Nobody is refused by a host that cannot be reached.
        if self._network is not None and not self._network.is_cut(broker):
            self._network.end(self._members[broker].advertised_port)

    def _agreed(self, seen: Callable[[View], int | None], what: str) -> int:
        found: list[int] = []

        def is_seen() -> bool:
            running = self.running
            answers = []
            for broker in running:
                with suppress(PeerError):
                    answers.append(seen(self.view(broker)))
            # A broker that has just died may not have been noticed yet.
            best = majority(answers, len(running))
            if best is None or best not in self.running:
                return False
            found[:] = [best]
            return True

        self.wait_until(is_seen, what)
        return found[0]

    def _shown(self) -> str:
        views = {}
        for broker in self.running:
            with suppress(PeerError):
                views[broker] = self.view(broker)
        return repr(views)
