"""TLS: produce, consume, handshakes and idle connections, on the same certificates and versions."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.kafka.broker import HOST, KafkaBroker, free_ports
from bench.kafka.comparison import Row, compared
from bench.kafka.measure.throughput import LARGE, flow_comparison
from bench.kafka.setup import Setup
from bench.kafka.sides import BOTH, Bench, KafkaUnderTest, MoldauUnderTest, UnderTest
from bench.tasks import BulkFetch, BulkProduce, TlsLoopback
from moldau.bench.proc import cpu_seconds
from moldau.bench.results import number
from moldau.bench.tasks import ByteFlow, Consume, Flow, Produce
from moldau.security.authority import Authority

_CLIENTS = 4
_TIMEOUT_S = 60.0
_BY_LIBRDKAFKA = ("produce 1 KiB over TLS", "consume 1 KiB over TLS")


def measure_tls(bench: Bench) -> Iterator[Row]:
    files = _Certificates(bench.folder)
    with _brokers(bench, files) as brokers:
        alone = bench.children.run(
            TlsLoopback(str(files.keystore), str(files.trusted), bench.scale.requests_s), ByteFlow
        )
        yield from _flows(bench, brokers, files, alone)
        yield _handshakes(bench, brokers, files)
        yield _idle(bench, brokers, files)


class _Certificates:
    """An authority, and a broker's certificate, in files."""

    def __init__(self, folder: Path) -> None:
        authority = Authority.create("bench")
        self.keystore, self.trusted = folder / "broker.pem", folder / "authority.pem"
        self.keystore.write_text(authority.issue("broker", (HOST, "localhost")).pem)
        self.trusted.write_text(authority.certificate)

    @property
    def settings(self) -> dict[str, str]:
        """The same for both brokers."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.enabled.protocols": "TLSv1.3",
        }

    @property
    def client(self) -> dict[str, str]:
        """What librdkafka needs."""
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.trusted)}

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.trusted))


class _TlsBroker:
    """A broker, and where it speaks TLS; without that it is used for what is not measured."""

    def __init__(self, broker: UnderTest, port: int) -> None:
        self.broker = broker
        self.port = port

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"


class _Moldau(MoldauUnderTest):
    def __init__(self, bench: Bench, files: _Certificates, tls_port: int) -> None:
        super().__init__(bench.children, bench.new_folder())
        self._listen = f"PLAINTEXT://{HOST}:{self.port},SSL://{HOST}:{tls_port}"
        self._given = [f"{key}={value}" for key, value in (BOTH | files.settings).items()]

    def start(self) -> None:
        self.start_with(self._listen, self._given)

    def wait_ready(self) -> None:
        host, port = self.host, self.port
        super().wait_ready()
        self.host, self.port = host, port


def _kafka(bench: Bench, files: _Certificates, setup: Setup, tls_port: int) -> KafkaUnderTest:
    port, controller_port = free_ports(2)
    listeners = f"PLAINTEXT://{HOST}:{port},SSL://{HOST}:{tls_port}"
    settings = BOTH | files.settings
    settings |= {
        "listeners": f"{listeners},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
    }
    broker = KafkaBroker(
        bench.children,
        bench.new_folder(),
        setup,
        port=port,
        controller_port=controller_port,
        settings=settings,
    )
    return KafkaUnderTest(broker)


@contextmanager
def _brokers(bench: Bench, files: _Certificates) -> Iterator[dict[str, _TlsBroker]]:
    with ExitStack() as stack:
        found: dict[str, _TlsBroker] = {}
        for side in bench.sides:
            (tls_port,) = free_ports(1)
            broker: UnderTest
            if side.setup is None:
                broker = _Moldau(bench, files, tls_port)
            else:
                broker = _kafka(bench, files, side.setup, tls_port)
            broker.start()
            stack.callback(broker.discard)
            found[side.name] = _TlsBroker(broker, tls_port)
        for each in found.values():
            each.broker.wait_ready()
        for each in found.values():
            each.broker.wait_quiet()
        yield found


def _flows(
    bench: Bench, brokers: dict[str, _TlsBroker], files: _Certificates, alone: ByteFlow
) -> Iterator[Row]:
    count = bench.scale.tls_bytes // LARGE
    flows: dict[str, dict[str, list[Flow]]] = defaultdict(lambda: defaultdict(list))
    for name, side in brokers.items():
        bench.say(f"warming up {name} over TLS")
        _sample(bench, side, files, count // 2)
    under_test = {name: side.broker for name, side in brokers.items()}
    for name, broker in bench.turns("TLS, 1 KiB", under_test):
        broker.wait_quiet()
        for what, flow in _sample(bench, brokers[name], files, count).items():
            flows[what][name].append(flow)
    for what, of_sides in flows.items():
        found = flow_comparison(of_sides, LARGE)
        ours = found[1].median("Moldau") * 1e6
        note = (
            f"OpenSSL alone moves {number(alone.bytes_per_s / 1e6)} MB/s between two processes "
            f"here (Python's ssl over a socket, 256 KiB at once); Moldau comes to "
            f"{100 * ours / alone.bytes_per_s:.0f} % of that."
        )
        if what in _BY_LIBRDKAFKA:
            note += " The client's half of TLS, in one thread of librdkafka, limits all sides."
        yield Row("tls", what, found, note)


def _sample(bench: Bench, side: _TlsBroker, files: _Certificates, count: int) -> dict[str, Flow]:
    broker = side.broker
    topic = bench.new_topic(broker)
    warm_up = max(1, count // 10)
    produce = Produce(
        side.bootstrap, topic, broker.pid, LARGE, count, warm_up=warm_up, client=files.client
    )
    consume = Consume(side.bootstrap, topic, broker.pid, count, client=files.client)
    bulk_produce = BulkProduce(
        HOST, side.port, topic, broker.pid, LARGE, count, trusted=str(files.trusted)
    )
    bulk_fetch = BulkFetch(HOST, side.port, topic, broker.pid, count, trusted=str(files.trusted))
    produced, consumed = _BY_LIBRDKAFKA
    found = {
        produced: bench.machine.produce(produce),
        consumed: bench.children.run(consume, Flow),
        "produce ready batches over TLS": bench.children.run(bulk_produce, Flow),
        "fetch 1 KiB unread over TLS": bench.children.run(bulk_fetch, Flow),
    }
    broker.delete_topic(topic)
    return found


def _handshakes(bench: Bench, brokers: dict[str, _TlsBroker], files: _Certificates) -> Row:
    rates: dict[str, list[float]] = defaultdict(list)
    costs: dict[str, list[float]] = defaultdict(list)
    for side in brokers.values():
        _shake_hands(side, files, bench.scale.requests_s)
    for name, broker in bench.turns("TLS handshakes", {k: v.broker for k, v in brokers.items()}):
        broker.wait_quiet()
        spent, began = cpu_seconds(broker.pid), time.monotonic()
        count = _shake_hands(brokers[name], files, bench.scale.requests_s)
        rates[name].append(count / (time.monotonic() - began))
        costs[name].append((cpu_seconds(broker.pid) - spent) * 1000 / count)
    return Row(
        "tls",
        f"handshakes of TLS 1.3, {_CLIENTS} clients",
        (
            compared("connections", "/s", rates, more=True),
            compared("broker CPU each", "ms", costs),
        ),
        "Whole handshakes with a P-256 key, each followed by the end of the connection; the "
        "clients take their share of the machine.",
    )


def _shake_hands(side: _TlsBroker, files: _Certificates, seconds: float) -> int:
    counts = [0] * _CLIENTS
    deadline = time.monotonic() + seconds

    def work(place: int) -> None:
        context = files.context()
        while time.monotonic() < deadline:
            _connect(context, side.port).close()
            counts[place] += 1

    threads = [threading.Thread(target=work, args=(place,)) for place in range(_CLIENTS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return max(1, sum(counts))


def _connect(context: ssl.SSLContext, port: int) -> ssl.SSLSocket:
    plain = socket.create_connection((HOST, port), _TIMEOUT_S)
    return context.wrap_socket(plain, server_hostname=HOST)


def _idle(bench: Bench, brokers: dict[str, _TlsBroker], files: _Certificates) -> Row:
    count = bench.scale.tls_connections
    more: dict[str, list[float]] = {}
    context = files.context()
    for name, side in brokers.items():
        bench.say(f"{count:,} idle TLS connections: {name}")
        side.broker.wait_quiet()
        before, _ = side.broker.memory_mib()
        with ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(_connect(context, side.port))
            side.broker.wait_quiet()
            after, _ = side.broker.memory_mib()
        more[name] = [max(0.0, after - before)]
        side.broker.wait_quiet()
    return Row(
        "tls",
        f"{count:,} idle TLS connections",
        (
            compared("more memory (RSS)", "MiB", more),
            compared("of that, each", "KiB", {k: [v[0] * 1024 / count] for k, v in more.items()}),
        ),
        "Kafka's heap may have had room for them before.",
    )
