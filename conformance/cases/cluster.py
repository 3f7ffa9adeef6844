"""DescribeCluster, DescribeLogDirs, DescribeTopicPartitions, elections and reassignments."""

from __future__ import annotations

from typing import Any

from conformance.registry import case
from conformance.session import Session
from moldau.wire.apis import Api


@case(Api.DESCRIBE_CLUSTER)
def the_cluster(s: Session, version: int) -> None:
    for what, more in (
        ("plain", {}),
        ("with operations", {"include_cluster_authorized_operations": True}),
        ("controllers", {"endpoint_type": 2}),
        ("endpoint type 0", {"endpoint_type": 0}),
        ("endpoint type 9", {"endpoint_type": 9}),
        ("fenced ones too", {"include_fenced_brokers": True}),
    ):
        values: dict[str, Any] = {"endpoint_type": 1} | more
        s.ask(what, Api.DESCRIBE_CLUSTER, version, **values)


@case(Api.DESCRIBE_LOG_DIRS)
def log_folders(s: Session, version: int) -> None:
    name = s.topic(2)
    s.fill(name, s.batch(b"a", b"b"))
    for what, topics in (
        ("one partition", [(name, [0])]),
        ("both", [(name, [0, 1])]),
        ("an unknown partition", [(name, [7])]),
        ("an unknown topic", [(s.name("unknown"), [0])]),
        ("no partitions", [(name, [])]),
        ("twice", [(name, [0, 0])]),
        ("the topic twice", [(name, [0]), (name, [1])]),
        ("a negative partition", [(name, [-1, 1])]),
        ("an empty name", [("", [0])]),
        ("nothing", []),
    ):
        given = [{"topic": topic, "partitions": partitions} for topic, partitions in topics]
        s.ask(what, Api.DESCRIBE_LOG_DIRS, version, topics=given)
    everything = s.quietly(Api.DESCRIBE_LOG_DIRS, version, topics=None)
    found = [topic for each in everything.results for topic in each.topics if topic.name == name]
    s.note("in the list of all", [len(each.partitions) for each in found], Api.DESCRIBE_LOG_DIRS)


@case(Api.ALTER_REPLICA_LOG_DIRS)
def moves_between_folders(s: Session, version: int) -> None:
    name, unknown, here = s.topic(2), s.name("unknown"), str(s.broker.data_dir)

    def move(what: str, *moves: tuple[str, str, list[int]]) -> None:
        given = [
            {"path": path, "topics": [{"name": topic, "partitions": partitions}]}
            for path, topic, partitions in moves
        ]
        # The paths differ, so the question is not shown.
        answer = s.quietly(Api.ALTER_REPLICA_LOG_DIRS, version, dirs=given)
        found = {
            (topic.topic_name, each.partition_index): each.error_code
            for topic in answer.results
            for each in topic.partitions
        }
        s.note(what, sorted(found.items()), Api.ALTER_REPLICA_LOG_DIRS)

    move("to where it is", (here, name, [0, 1]))
    move("an unknown partition", (here, name, [9, 0]))
    move("a negative partition", (here, name, [-1]))
    move("an unknown topic", (here, unknown, [0]))
    move("an empty name", (here, "", [0]))
    move("a bad name", (here, "a b", [0]))
    move("the longest name", (here, "x" * 213, [0]))
    move("a name too long for a copy", ("/nowhere", "x" * 214, [0]))
    for path in ("/nowhere", "", "data", f"{here}/"):
        move(f"to {path.replace(here, 'here')!r}", (path, name, [0]), (path, unknown, [0]))
    move("to two folders", ("/nowhere", name, [0]), (here, name, [0]))
    move("twice", (here, name, [0, 0]))
    move("no partitions", (here, name, []))
    move("nothing")


@case(Api.DESCRIBE_QUORUM)
def the_quorum(s: Session, version: int) -> None:
    answer = s.quietly(
        Api.DESCRIBE_QUORUM,
        version,
        topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
    )
    s.note("the error", answer.error_code, Api.DESCRIBE_QUORUM)


@case(Api.DESCRIBE_TOPIC_PARTITIONS)
def partitions_in_pages(s: Session, version: int) -> None:
    one, five = s.topic(), s.topic(5)

    def describe(what: str, *names: str, **more: Any) -> None:
        values: dict[str, Any] = {"topics": [{"name": name} for name in names]}
        values |= {"response_partition_limit": 2000, "cursor": None}
        s.ask(what, Api.DESCRIBE_TOPIC_PARTITIONS, version, **values | more)

    describe("one", one)
    describe("two", five, one)
    describe("unknown", s.name("unknown"))
    describe("known and unknown", s.name("unknown"), one)
    describe("twice", one, one)
    describe("empty name", "")
    describe("bad name", "a b")
    for limit in (1, 3, 5, 6, 0, -1):
        describe(f"limit {limit}", one, five, response_partition_limit=limit)
    for topic, index in (
        (five, 2),
        (five, 5),
        (five, 9),
        (five, -1),
        (one, 0),
        ("zzz", 0),
        ("", 0),
    ):
        cursor = {"topic_name": topic, "partition_index": index}
        describe(f"from {topic[-2:]} {index}", one, five, cursor=cursor, response_partition_limit=2)


@case(Api.ELECT_LEADERS)
def elections(s: Session, version: int) -> None:
    name = s.topic(2)

    def elect(what: str, *partitions: tuple[str, list[int]], **more: Any) -> None:
        given = [{"topic": topic, "partitions": indexes} for topic, indexes in partitions]
        values: dict[str, Any] = {"election_type": 0, "topic_partitions": given, "timeout": 5000}
        s.ask(what, Api.ELECT_LEADERS, version, **values | more)

    elect("preferred", (name, [0, 1]))
    elect("unclean", (name, [0]), election_type=1)
    elect("a type nobody knows", (name, [0]), election_type=9)
    elect("an unknown partition", (name, [9]))
    elect("an unknown topic", (s.name("unknown"), [0]))
    elect("a negative partition", (name, [-1]))
    elect("an empty name", ("", [0]))
    elect("known and unknown", (s.name("unknown"), [0]), (name, [0, 9]))
    elect("no partitions", (name, []))
    elect("nothing")
    elect("twice", (name, [0, 0]))
    elect("the topic twice", (name, [0]), (name, [1]))
    elect("unclean, an unknown partition", (name, [9]), election_type=1)
    for kind in (0, 1):
        everything: dict[str, Any] = {"topic_partitions": None, "timeout": 5000}
        answer = s.quietly(Api.ELECT_LEADERS, version, election_type=kind, **everything)
        found = [each for each in answer.replica_election_results if each.topic == name]
        s.note(f"everything, type {kind}", found, Api.ELECT_LEADERS)


@case(Api.ALTER_PARTITION_REASSIGNMENTS)
def reassignments(s: Session, version: int) -> None:
    name = s.topic(2)

    def assign(what: str, topic: str, *partitions: tuple[int, list[int] | None]) -> None:
        given = [{"partition_index": index, "replicas": ids} for index, ids in partitions]
        s.ask(
            what,
            Api.ALTER_PARTITION_REASSIGNMENTS,
            version,
            timeout=5000,
            topics=[{"name": topic, "partitions": given}],
        )

    assign("to where it is", name, (0, [1]))
    assign("to nowhere", name, (0, []))
    assign("to an unknown broker", name, (0, [9]))
    assign("to a broker twice", name, (0, [1, 1]))
    assign("to a negative broker", name, (0, [-1]))
    assign("cancel what is not under way", name, (0, None))
    assign("an unknown partition", name, (9, [1]))
    assign("an unknown topic", s.name("unknown"), (0, [1]))
    assign("no partitions", name)
    assign("an empty name", "", (0, [1]))
    assign("a negative partition", name, (-1, [1]))
    assign("two partitions, one of them unknown", name, (9, [1]), (1, [1]))
    assign("to more brokers than there are", name, (0, [1, 9]))
    assign("a partition twice", name, (0, [1]), (0, [1]))
    everything: dict[str, Any] = {"timeout": 5000, "topics": []}
    s.ask("no topics", Api.ALTER_PARTITION_REASSIGNMENTS, version, **everything)
    if version >= 1:
        partition = {"partition_index": 0, "replicas": [1, 2]}
        everything |= {"topics": [{"name": name, "partitions": [partition]}]}
        everything |= {"allow_replication_factor_change": False}
        s.ask("another factor", Api.ALTER_PARTITION_REASSIGNMENTS, version, **everything)


@case(Api.LIST_PARTITION_REASSIGNMENTS)
def reassignments_under_way(s: Session, version: int) -> None:
    name = s.topic()
    for what, topics in (
        ("all", None),
        ("one", [{"name": name, "partition_indexes": [0]}]),
        ("unknown", [{"name": s.name("unknown"), "partition_indexes": [0]}]),
        ("an unknown partition", [{"name": name, "partition_indexes": [9, -1]}]),
        ("no partitions", [{"name": name, "partition_indexes": []}]),
        ("twice", [{"name": name, "partition_indexes": [0, 0]}]),
        ("an empty name", [{"name": "", "partition_indexes": [0]}]),
        ("none", []),
    ):
        s.ask(what, Api.LIST_PARTITION_REASSIGNMENTS, version, timeout=5000, topics=topics)
