"""Apache Kafka's own command-line tools, in Java, against each broker."""

from __future__ import annotations

import re
import subprocess
from typing import Any

from bench.kafka.broker import java_words
from conformance.registry import scenario
from conformance.session import Session
from moldau.records.compression import Codec

_TIMEOUT_S = 90
# Start-up is most of what a tool does.
_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
TOOLS = "org.apache.kafka.tools"


def run(main: str, *words: str, stdin: str = "") -> tuple[int, str]:
    """The exit status of a tool and what it printed, without warnings about itself."""
    done = subprocess.run(
        java_words(main, *words, jvm=_JVM),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    lines = [line for line in done.stdout.splitlines() if "WARN" not in line]
    return done.returncode, "\n".join(lines)


class Tools:
    """The tools that are told a bootstrap address, with their output made comparable."""

    def __init__(self, s: Session) -> None:
        self.s = s

    def __call__(self, what: str, main: str, *words: str, stdin: str = "") -> str:
        status, text = run(main, "--bootstrap-server", self.s.broker.bootstrap, *words, stdin=stdin)
        self.s.note(f"{what}: exit status", status)
        text = text.replace(str(self.s.broker.data_dir), "FOLDER")
        shown = re.sub(r"\s+", " ", text.replace(str(self.s.broker.port), "PORT"))
        shown = re.sub(r"TopicId: \S+", "TopicId: ID", shown)
        self.s.note(what, shown.strip())
        return text


@scenario("Java tools")
def kafka_topics(s: Session) -> None:
    tool, name = Tools(s), s.name()
    main = f"{TOOLS}.TopicCommand"
    create = ("--create", "--topic", name, "--partitions", "3", "--config", "retention.ms=100000")
    tool("create", main, *create)
    s.wait_for_topic(name, 3)
    tool("create again", main, "--create", "--topic", name, "--if-not-exists")
    tool("describe", main, "--describe", "--topic", name)
    tool("more partitions", main, "--alter", "--topic", name, "--partitions", "4")
    text = run(main, "--bootstrap-server", s.broker.bootstrap, "--list")[1]
    s.note("in the list", name in text.split())
    tool("delete", main, "--delete", "--topic", name)
    s.wait_for_no_topic(name)
    tool("describe what is gone", main, "--describe", "--topic", name)


@scenario("Java tools")
def kafka_configs(s: Session) -> None:
    tool, name = Tools(s), s.topic()
    main = "kafka.admin.ConfigCommand"
    topic = ("--entity-type", "topics", "--entity-name", name)
    tool(
        "alter", main, *topic, "--alter", "--add-config", "retention.ms=5000,cleanup.policy=compact"
    )
    s.settle()
    tool("describe", main, *topic, "--describe")
    tool("delete one", main, *topic, "--alter", "--delete-config", "retention.ms")
    s.settle()
    tool("describe again", main, *topic, "--describe")
    tool("nonsense", main, *topic, "--alter", "--add-config", "nonsense=1")
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    tool("a broker", main, *broker, "--alter", "--add-config", "log.retention.ms=700000000")
    s.settle()
    tool("describe the broker", main, *broker, "--describe")
    tool("a broker again", main, *broker, "--alter", "--delete-config", "log.retention.ms")


@scenario("Java tools")
def console_producer_and_consumer(s: Session) -> None:
    tool, name, group = Tools(s), s.topic(), s.name("g")
    lines = "".join(f"k{n}:value {n}\n" for n in range(20))
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    tool("produce", f"{TOOLS}.ConsoleProducer", "--topic", name, *keyed, stdin=lines)
    consume = ("--topic", name, "--from-beginning", "--max-messages", "20", "--group", group)
    shown = ("--property", "print.key=true", "--property", "print.offset=true")
    main = f"{TOOLS}.consumer.ConsoleConsumer"
    tool("consume", main, *consume, *shown, "--timeout-ms", "30000")
    main = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    text = run(main, "--bootstrap-server", s.broker.bootstrap, "--describe", "--group", group)[1]
    rows = [line.split()[:6] for line in text.splitlines() if line.startswith(group)]
    s.note("describe the group", rows)
    tool("state", main, "--describe", "--group", group, "--state")
    reset = ("--reset-offsets", "--group", group, "--topic", name, "--to-offset", "5", "--execute")
    tool("reset", main, *reset)
    listed = run(main, "--bootstrap-server", s.broker.bootstrap, "--list")[1]
    s.note("listed", group in listed.split())
    tool("delete", main, "--delete", "--group", group)


@scenario("Java tools")
def performance_tools(s: Session) -> None:
    name = s.topic()
    words: tuple[str, ...] = ("--topic", name, "--num-records", "20000", "--record-size", "100")
    words += ("--throughput", "-1", "--producer-props", f"bootstrap.servers={s.broker.bootstrap}")
    for more in ((), ("compression.type=lz4",), ("acks=1", "enable.idempotence=false")):
        status, text = run(f"{TOOLS}.ProducerPerformance", *words, *more)
        s.note(f"produced {more}", (status, "20000 records sent, " in text))
    consume = ("--bootstrap-server", s.broker.bootstrap, "--topic", name)
    status, text = run(f"{TOOLS}.ConsumerPerformance", *consume, "--messages", "60000")
    row = text.splitlines()[-1].split(", ")
    s.note("consumed", (status, row[2], row[4]))
    status, text = run(f"{TOOLS}.EndToEndLatency", s.broker.bootstrap, name, "20", "all", "100")
    s.note("latency", (status, "Avg latency" in text))


@scenario("Java tools")
def offsets_and_log_dirs(s: Session) -> None:
    tool, name = Tools(s), s.topic(2)
    s.fill(name, s.batch(b"a", b"b"))
    for when in ("earliest", "latest", "max-timestamp", str(s.now_ms - 60_000)):
        tool(f"offsets, {when[:8]}", f"{TOOLS}.GetOffsetShell", "--topic", name, "--time", when)
    main = f"{TOOLS}.LogDirsCommand"
    text = run(main, "--bootstrap-server", s.broker.bootstrap, "--describe", "--topic-list", name)[
        1
    ]
    s.note("sizes", re.findall(rf'"partition":"{name}-(\d)","size":(\d+)', text))


@scenario("Java tools")
def dump_log_segments(s: Session) -> None:
    """Kafka's own reader of segment files on each broker's files."""
    name = s.topic(configs={"segment.bytes": "1048576"})
    for codec in Codec:
        s.fill(name, s.batch(b"a" * 50, b"b" * 50, codec=codec))
    s.fill(name, s.batch(b"p", producer_id=5, producer_epoch=0, base_sequence=0))
    # Enough for a second segment: the files of the first are then finished.
    for _ in range(12):
        s.fill(name, s.batch(b"x" * 95_000))
    folder = s.broker.data_dir / f"{name}-0"
    logs = sorted(folder.glob("*.log"))
    s.note("segments", [each.name for each in logs])
    text = dump(s, "the log", "--print-data-log", "--files", str(logs[0]))
    s.note("batches", [fields(line) for line in text.splitlines() if line.startswith("base")])
    s.note("records", [fields(line) for line in text.splitlines() if line.startswith("| offset")])
    for kind in ("index", "timeindex"):
        file = logs[0].with_suffix(f".{kind}")
        text = dump(s, f"the {kind}", "--verify-index-only", "--files", str(file))
        s.note(
            f"the {kind} is sound", "mismatch" not in text.lower() and "fail" not in text.lower()
        )


def dump(s: Session, what: str, *words: str) -> str:
    status, text = run(f"{TOOLS}.DumpLogSegments", *words)
    s.note(f"{what}: exit status", status)
    if status != 0:
        raise AssertionError(f"DumpLogSegments failed with {status}: {text[:500]}")
    return text


def fields(line: str) -> dict[str, Any]:
    return dict(re.findall(r"(\w+): (\S+)", line))
