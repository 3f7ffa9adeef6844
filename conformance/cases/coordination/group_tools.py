"""Kafka's console consumer with the consumer protocol, and its tools for groups, in Java."""

from __future__ import annotations

import re

from conformance.cases.coordination.membership import ready
from conformance.cases.tools import TOOLS, Tools, run
from conformance.registry import scenario
from conformance.session import Session
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch
from moldau.wire.apis import Api

_GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
_CONSOLE = f"{TOOLS}.consumer.ConsoleConsumer"


@scenario("Java tools")
def consumer_protocol(s: Session) -> None:
    """Java's consumer reads by the consumer protocol, and the tools show and delete the group."""
    ready(s)
    tool, name, group = Tools(s), s.topic(2), s.name("g")
    records = [Record(number, s.now_ms, None, b"v%d" % number) for number in range(5)]
    batch = bytes(build_batch(records, codec=Codec.NONE))
    partition = {"index": 0, "records": batch}
    s.quietly(
        Api.PRODUCE, 9, acks=1, timeout=10_000,
        topic_data=[{"name": name, "partition_data": [partition]}],
    )  # fmt: skip
    words = ("--topic", name, "--group", group, "--from-beginning", "--max-messages", "5")
    protocol = ("--command-property", "group.protocol=consumer")
    tool("consume", _CONSOLE, *words, *protocol, "--timeout-ms", "30000")
    text = run(_GROUPS, "--bootstrap-server", s.broker.bootstrap, "--list", "--type")[1]
    listed = [line.split() for line in text.splitlines() if line.startswith(group)]
    s.note("listed", [[group, *rest] for _, *rest in listed])
    tool("state", _GROUPS, "--describe", "--group", group, "--state")
    tool("offsets", _GROUPS, "--describe", "--group", group, "--offsets")
    to = ("--reset-offsets", "--to-earliest", "--topic", name, "--execute")
    tool("reset", _GROUPS, "--group", group, *to)
    tool("delete", _GROUPS, "--delete", "--group", group)
    gone = run(_GROUPS, "--bootstrap-server", s.broker.bootstrap, "--describe", "--group", group)
    s.note("described when gone", (gone[0], bool(re.search("does not exist", gone[1]))))


@scenario("Java tools")
def group_configs(s: Session) -> None:
    tool, group = Tools(s), s.name("g")
    main = "kafka.admin.ConfigCommand"
    entity = ("--entity-type", "groups", "--entity-name", group)
    tool("alter", main, *entity, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    s.settle()
    tool("describe", main, *entity, "--describe")
    low = ("--alter", "--add-config", "consumer.session.timeout.ms=1")
    s.note("too low", run(main, "--bootstrap-server", s.broker.bootstrap, *entity, *low)[0])
    tool("delete", main, *entity, "--alter", "--delete-config", "consumer.session.timeout.ms")
    s.settle()
    tool("describe again", main, *entity, "--describe")
