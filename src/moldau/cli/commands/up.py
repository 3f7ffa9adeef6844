"""`moldau up`: a whole cluster on this machine, in the foreground."""

from __future__ import annotations

import fcntl
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import key_values
from moldau.cli.ports import HOST, cluster_ports
from moldau.cli.stopping import stopping
from moldau.cli.views.output import Failure, show

if TYPE_CHECKING:
    from moldau.local.ensemble import Ensemble
    from moldau.local.process import BrokerProcess
    from moldau.local.secure import SecureFolder

MOST_SERVERS = 7
_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_red", "bright_cyan")
_LOOK_EVERY_S = 0.2
_STOP_WITHIN_S = 60.0
_HEAR_WITHIN_S = 2.0


def up(
    brokers: Annotated[
        int, typer.Option(min=1, max=100, metavar="N", help="Number of brokers.")
    ] = 3,
    ensemble: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=25,
            metavar="N",
            help="Number of ZooKeeper servers to start, from PySpark's jars. Default: 3.",
        ),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            metavar="HOSTS",
            help="Use a running ensemble instead, HOST:PORT,... with an optional /CHROOT.",
        ),
    ] = None,
    data_dir: Annotated[Path, typer.Option(metavar="D", help="Folder for all data.")] = Path(
        "moldau-cluster"
    ),
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65_000,
            metavar="P",
            help="Port of the first broker; the others take the next ones. 0 takes free ports.",
        ),
    ] = 9092,
    http_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_000,
            metavar="P",
            help="Port of the first broker for HTTP; the others take the next ones. 0 takes free "
            "ports. Default: 8081, or free ports if those are taken or --port is 0.",
        ),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="Lock the cluster: TLS, passwords and access control. The first start creates "
            "the files for this in the data folder.",
        ),
    ] = False,
    set: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting for all brokers; may be repeated."),
    ] = None,
) -> None:
    """Run a whole cluster in the foreground: brokers and a ZooKeeper ensemble.

    All logs go to stderr, each line with the name of the process that wrote it. Ctrl-C stops
    everything. A broker that dies is reported and not restarted, so that you can watch the others
    take over.
    """
    if ensemble is not None and zookeeper is not None:
        raise typer.BadParameter(
            "--ensemble starts an ensemble and --zookeeper uses a running one; "
            "give only one of them"
        )
    settings = key_values(set or [], "--set")
    servers = 3 if ensemble is None else ensemble
    with stopping() as stop, _Voices() as voices, ExitStack() as stack:
        stack.enter_context(_locked(data_dir))
        ports, http = cluster_ports(brokers, port, http_port)
        if zookeeper is None:
            _warn_of_odd_sizes(servers)
            started = _ensemble(stack, data_dir / "zookeeper", servers, voices)
            zookeeper = started.hosts
        else:
            started = None
        locked = _lock(data_dir / "secure", ports) if secure else None
        members = _Members(stack, voices, data_dir, zookeeper, settings, locked)
        members.start(ports, http, stop)
        if not stop.is_set():
            _tell(ports, http, locked)
            members.watch(started, stop)
        show("stopping", "dim", stderr=True)
        members.stop()


def _lock(folder: Path, ports: Sequence[int]) -> SecureFolder:
    from moldau.local.secure import SecureFolder

    locked = SecureFolder(folder)
    locked.write_client_config(",".join(f"{HOST}:{port}" for port in ports))
    return locked


def _tell(ports: Sequence[int], http: Sequence[int], locked: SecureFolder | None) -> None:
    bootstrap = ",".join(f"{HOST}:{port}" for port in ports)
    copies = min(3, len(ports))
    first = "" if ports[0] == 9092 else f" --bootstrap {HOST}:{ports[0]}"
    scheme = "http" if locked is None else "https"
    if locked is not None:
        first = f" --client-config {locked.admin_config}"
    print(f"moldau cluster of {len(ports)} ready on {bootstrap}", flush=True)
    for line in (
        f"try: moldau cluster describe{first}",
        f"     moldau topics create orders --partitions 6 --replication-factor {copies}{first}",
        "     kill -9 a broker (its pid is above), and describe the cluster again",
        f"HTTP: {', '.join(f'{scheme}://{HOST}:{port}' for port in http)}",
        f"console: {scheme}://{HOST}:{http[0]}/console/",
        *([] if locked is None else [f"locked: clients need {locked.admin_config}"]),
        "Ctrl-C stops everything",
    ):
        show(line, "dim", stderr=True)


def _warn_of_odd_sizes(servers: int) -> None:
    if servers % 2 == 0:
        show(
            f"warning: {servers} ZooKeeper servers survive no more failures than {servers - 1}, "
            "because a majority has to agree; use an odd number",
            "yellow",
            stderr=True,
        )
    if servers > MOST_SERVERS:
        show(
            f"warning: with more than {MOST_SERVERS} ZooKeeper servers, every change takes longer, "
            "because a majority has to write it",
            "yellow",
            stderr=True,
        )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep a second `up` out of the folder while the block runs."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as problem:
        raise Failure(
            f"{folder} cannot be used: {problem}", "choose another folder with --data-dir"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Failure(
                f"another `moldau up` is running in {folder}",
                "stop it, or choose another folder with --data-dir",
            ) from None
        yield


def _ensemble(stack: ExitStack, folder: Path, servers: int, voices: _Voices) -> Ensemble:
    from moldau.local.ensemble import Ensemble, NoZooKeeper

    found = len(list(folder.glob("server-*")))
    if found not in (0, servers):
        raise Failure(
            f"{folder} has the data of {found} ZooKeeper servers, not {servers}",
            f"start it with --ensemble {found}, or choose another folder with --data-dir",
        )
    show(f"starting {servers} ZooKeeper server{'s' if servers != 1 else ''}", "dim", stderr=True)
    ensemble = Ensemble(servers, folder)
    try:
        stack.enter_context(ensemble)
    except NoZooKeeper as problem:
        raise Failure(
            str(problem),
            "run `pip install 'moldau[spark]'`, or use a running ensemble with --zookeeper HOSTS",
        ) from None
    except (RuntimeError, OSError) as problem:
        raise Failure(f"ZooKeeper did not start: {problem}") from None
    for server in range(servers):
        voices.follow(f"zookeeper {server}", ensemble.log(server))
    return ensemble


@dataclass(slots=True)
class _Member:
    broker: int
    process: BrokerProcess
    is_reported: bool = False


class _Members:
    """The brokers' processes."""

    def __init__(
        self,
        stack: ExitStack,
        voices: _Voices,
        folder: Path,
        zookeeper: str,
        settings: dict[str, str],
        locked: SecureFolder | None,
    ) -> None:
        self._locked = locked
        self._voices = voices
        self._folder = folder
        self._zookeeper = zookeeper
        self._settings = settings
        self._members: list[_Member] = []
        # Whatever goes wrong, none of them is left behind.
        stack.callback(self._kill)

    def start(self, ports: Sequence[int], http: Sequence[int], stop: threading.Event) -> None:
        """Start all and return when each of them serves, or `stop` is set."""
        from moldau.local.process import BrokerFailed, BrokerProcess, broker_command

        for broker, (port, http_port) in enumerate(zip(ports, http, strict=True)):
            config = None
            if self._locked is not None:
                made = self._locked.broker_settings(
                    broker, f"{HOST}:{port}", zookeeper=True, http=True
                )
                config = self._locked.write_broker_config(broker, made)
            command = broker_command(
                broker,
                listen=f"{HOST}:{port}",
                data_dir=self._folder / f"broker-{broker}",
                zookeeper=self._zookeeper,
                settings={"http.listen": f"{HOST}:{http_port}", **self._settings},
                config=config,
            )
            process = BrokerProcess(command, subprocess.PIPE, None)
            self._members.append(_Member(broker, process))
            self._voices.listen(f"broker {broker}", process.process.stderr)
        for member in self._members:
            if stop.is_set():
                return
            try:
                ready = member.process.wait_ready()
            except BrokerFailed:
                if stop.is_set():
                    return
                self._voices.hear_out(f"broker {member.broker}")
                raise Failure(
                    f"broker {member.broker} did not start", "see its output above"
                ) from None
            self._voices.say(f"broker {member.broker}", f"{ready}, pid {member.process.pid}")

    def watch(self, ensemble: Ensemble | None, stop: threading.Event) -> None:
        """Watch until `stop`, and report processes that end before."""
        lost: set[int] = set()
        while not stop.wait(_LOOK_EVERY_S):
            for member in self._members:
                if not member.process.is_running and not member.is_reported:
                    member.is_reported = True
                    self._report(member)
            for server in range(0 if ensemble is None else len(ensemble)):
                if ensemble is not None and not ensemble.is_running(server) and server not in lost:
                    lost.add(server)
                    show(f"zookeeper {server} has ended", "bold red", stderr=True)
            if all(member.is_reported for member in self._members):
                raise Failure("all brokers have ended", "see their output above")

    def _report(self, member: _Member) -> None:
        status = member.process.process.returncode
        how = f"signal {-status}" if status < 0 else f"status {status}"
        show(f"broker {member.broker} ended with {how}", "bold red", stderr=True)
        words = ["moldau", *member.process.command[3:]]
        show(f"  start it again: {shlex.join(words)}", "dim", stderr=True)

    def stop(self) -> None:
        """Ask all to stop and wait until they have; who does not is ended."""
        running = [member for member in self._members if member.process.is_running]
        for member in running:
            member.process.ask_to_stop()
        deadline = time.monotonic() + _STOP_WITHIN_S
        while any(member.process.is_running for member in running):
            if time.monotonic() > deadline:
                names = ", ".join(str(m.broker) for m in running if m.process.is_running)
                raise Failure(f"broker {names} did not stop within {_STOP_WITHIN_S:g} s")
            time.sleep(_LOOK_EVERY_S / 4)
        for member in running:
            self._voices.hear_out(f"broker {member.broker}")
            if member.process.process.returncode != 0:
                self._report(member)
                raise Failure(f"broker {member.broker} did not stop cleanly")

    def _kill(self) -> None:
        for member in self._members:
            member.process.kill()


class _Voices:
    """Lines of several processes, each printed whole and with the name of who wrote it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._styles: dict[str, str] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._is_over = threading.Event()

    def __enter__(self) -> _Voices:
        return self

    def __exit__(self, *problem: object) -> None:
        self._is_over.set()
        for thread in self._threads.values():
            thread.join(_HEAR_WITHIN_S)

    def say(self, name: str, text: str) -> None:
        from rich.text import Text

        from moldau.cli.views.output import console

        with self._lock:
            style = self._styles.setdefault(name, _COLOURS[len(self._styles) % len(_COLOURS)])
            line = Text.assemble((f"{name} | ", style), text)
            console(stderr=True).print(line)

    def listen(self, name: str, stream: IO[bytes] | None) -> None:
        """Print what comes out of a pipe, until it closes."""
        assert stream is not None

        def run() -> None:
            with stream:
                for line in stream:
                    self.say(name, line.decode("utf-8", "replace").rstrip("\n"))

        self._begin(name, run)

    def follow(self, name: str, path: Path) -> None:
        """Print what is added to a file from now on."""
        position = path.stat().st_size if path.exists() else 0

        def run() -> None:
            with path.open("rb") as file:
                file.seek(position)
                pending = b""
                while True:
                    # Asked before the file is read, so that the last lines are not missed.
                    is_over = self._is_over.is_set()
                    *lines, pending = (pending + file.read()).split(b"\n")
                    for line in lines:
                        self.say(name, line.decode("utf-8", "replace"))
                    if is_over:
                        return
                    self._is_over.wait(_LOOK_EVERY_S)

        self._begin(name, run)

    def hear_out(self, name: str) -> None:
        """Return when a process that has ended has had its say."""
        self._threads[name].join(_HEAR_WITHIN_S)

    def _begin(self, name: str, run: Callable[[], None]) -> None:
        self._threads[name] = threading.Thread(target=run, name=name, daemon=True)
        self._threads[name].start()
