"""Kafka's tools for whoever runs a cluster: moves, elections, versions, groups, deletions."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from conformance.cases.tools import TOOLS, Tools, run
from conformance.registry import scenario
from conformance.session import Session
from moldau.wire.apis import VERSIONS, Api

_OFFERED = re.compile(r"\w+\((\d+)\): (\d+)(?: to (\d+))? \[usable: (\d+)\]")


@contextmanager
def _file(**content: Any) -> Iterator[str]:
    """The path of a JSON file as these tools want it."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(content, file)
        file.flush()
        yield file.name


@scenario("Java tools")
def kafka_reassign_partitions(s: Session) -> None:
    tool, name = Tools(s), s.topic(2)
    main = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    with _file(version=1, topics=[{"topic": name}]) as topics:
        words = ("--generate", "--broker-list", "1", "--topics-to-move-json-file", topics)
        tool("generate", main, *words)
    moves = [{"topic": name, "partition": n, "replicas": [1]} for n in range(2)]
    with _file(version=1, partitions=moves) as plan_file:
        plan = ("--reassignment-json-file", plan_file)
        tool("execute", main, "--execute", *plan)
        tool("verify", main, "--verify", *plan)
        tool("cancel", main, "--cancel", *plan)
    with _file(version=1, partitions=[moves[0] | {"replicas": [9]}]) as plan_file:
        tool("to an unknown broker", main, "--execute", "--reassignment-json-file", plan_file)
    tool("list", main, "--list")


@scenario("Java tools")
def kafka_leader_election(s: Session) -> None:
    tool, name = Tools(s), s.topic()
    main = f"{TOOLS}.LeaderElectionCommand"
    for kind in ("preferred", "unclean"):
        one = ("--election-type", kind, "--topic", name, "--partition", "0")
        tool(kind, main, *one)
    tool("all", main, "--election-type", "preferred", "--all-topic-partitions")
    unknown = ("--topic", s.name("unknown"), "--partition", "0")
    tool("an unknown topic", main, "--election-type", "preferred", *unknown)


@scenario("Java tools")
def kafka_replicas_between_folders(s: Session) -> None:
    tool, name = Tools(s), s.topic()
    main = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    move = {"topic": name, "partition": 0, "replicas": [1]}
    for what, path in (("where it is", str(s.broker.data_dir)), ("elsewhere", "/nowhere")):
        with _file(version=1, partitions=[move | {"log_dirs": [path]}]) as plan_file:
            tool(what, main, "--execute", "--reassignment-json-file", plan_file)


@scenario("Java tools")
def kafka_groups_and_metrics_settings(s: Session) -> None:
    tool = Tools(s)
    main = "kafka.admin.ConfigCommand"
    for kind in ("groups", "client-metrics"):
        name = s.name("x")
        one = ("--entity-type", kind, "--entity-name", name)
        at = ("--bootstrap-server", s.broker.bootstrap)
        if kind == "groups":
            change = ("--add-config", "consumer.session.timeout.ms=50000")
            tool("a setting of a group", main, "--alter", *one, *change)
        status, text = run(main, *at, "--describe", "--entity-type", kind)
        # Groups of other cases are among them, and when those are gone is a matter of time.
        lines = [line for line in text.splitlines() if kind != "groups" or name in line]
        s.note(f"all {kind}", (status, lines))
        tool(f"one of the {kind}", main, "--describe", *one)
        tool(f"{kind} altered", main, "--alter", *one, "--add-config", "nonsense=1")
    tool("client metrics", f"{TOOLS}.ClientMetricsCommand", "--list")


@scenario("Java tools")
def kafka_metadata_quorum(s: Session) -> None:
    at = ("--bootstrap-server", s.broker.bootstrap)
    status, _ = run(f"{TOOLS}.MetadataQuorumCommand", *at, "describe", "--status")
    s.note("exit status", status)


@scenario("Java tools")
def kafka_delete_records(s: Session) -> None:
    tool, name = Tools(s), s.topic()
    s.fill(name, s.batch(b"a", b"b", b"c"))
    main = f"{TOOLS}.DeleteRecordsCommand"
    for what, offset in (("two", 2), ("all", -1), ("too many", 9)):
        wanted = [{"topic": name, "partition": 0, "offset": offset}]
        with _file(version=1, partitions=wanted) as file:
            tool(what, main, "--offset-json-file", file)


@scenario("Java tools")
def kafka_broker_api_versions(s: Session) -> None:
    """What Kafka's own client makes of the ranges, where they are the same (see `Versions`)."""
    main = f"{TOOLS}.BrokerApiVersionsCommand"
    status, text = run(main, "--bootstrap-server", s.broker.bootstrap)
    s.note("exit status", status)
    found = {int(row[1]): row.groups()[1:] for row in _OFFERED.finditer(text)}
    for api in sorted({*VERSIONS} - {Api.DESCRIBE_LOG_DIRS}):
        if api.name.endswith("_TXN") or api is Api.TXN_OFFSET_COMMIT:
            continue
        s.note(api.name, found.get(api))


@scenario("Java tools")
def kafka_cluster_and_groups(s: Session) -> None:
    tool, name, group = Tools(s), s.topic(), s.name("g")
    status, text = run(f"{TOOLS}.ClusterTool", "cluster-id", "-b", s.broker.bootstrap)
    s.note("cluster id", (status, text.startswith("Cluster ID: ")))
    endpoints = ("list-endpoints", "-b", s.broker.bootstrap)
    status, text = run(f"{TOOLS}.ClusterTool", *endpoints)
    s.note("endpoints", (status, [row.split()[:2] for row in text.splitlines()]))
    count = 30
    at = ("--bootstrap-server", s.broker.bootstrap, "--topic", name, "--max-messages", str(count))
    status, text = run(f"{TOOLS}.VerifiableProducer", *at)
    sent = [each for each in map(json.loads, text.splitlines()) if "offset" in each]
    s.note("produced", (status, sorted((each["offset"], each["value"]) for each in sent)))
    status, text = run(f"{TOOLS}.VerifiableConsumer", *at, "--group-id", group)
    events = [json.loads(line) for line in text.splitlines()]
    read = sum(each["count"] for each in events if each["name"] == "records_consumed")
    names = {each["name"] for each in events}
    s.note("consumed", (status, read, sorted(names)))
    text = run(f"{TOOLS}.GroupsCommand", "--bootstrap-server", s.broker.bootstrap, "--list")[1]
    s.note("groups", [row.split() for row in text.splitlines() if row.startswith(group)])
    main = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    tool("members", main, "--describe", "--group", group, "--members", "--verbose")
    tool("offsets deleted", main, "--delete-offsets", "--group", group, "--topic", name)
    reset = ("--reset-offsets", "--group", group, "--topic", name, "--execute")
    tool("to the latest", main, *reset, "--to-latest")
    tool("back by ten", main, *reset, "--shift-by", "-10")
