"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from conformance.registry import case
from conformance.session import Session
from moldau.wire.apis import Api

_STRANGER = UUID(int=0x1234_5678_9ABC_4DEF_8000_0000_0000_0002)


def _create(s: Session, what: str, version: int, *topics: dict[str, Any], **more: Any) -> None:
    wanted = [{"num_partitions": 1, "replication_factor": 1} | each for each in topics]
    answer = s.ask(what, Api.CREATE_TOPICS, version, topics=wanted, **{"timeout": 5000} | more)
    if answer is None or more.get("validate_only"):
        return
    for result in answer.topics:
        if int(result.error_code) == 0:
            partitions = next(each for each in wanted if each["name"] == result.name)
            count = partitions["num_partitions"]
            if count < 0:
                count = len(partitions.get("assignments", ())) or 1
            s.wait_for_topic(result.name, count)


@case(Api.CREATE_TOPICS)
def names(s: Session, version: int) -> None:
    name = s.name()
    _create(s, "new", version, {"name": name})
    _create(s, "again", version, {"name": name})
    for what, text in (
        ("empty", ""),
        ("a dot", "."),
        ("two dots", ".."),
        ("a space", "a b"),
        ("a slash", "a/b"),
        ("umlaut", "topic-ä"),
        ("250 letters", "x" * 250),
        ("internal", "__consumer_offsets_x"),
    ):
        _create(s, what, version, {"name": text})
    dotted = s.name("col.lide")
    _create(s, "a dotted name", version, {"name": dotted})
    _create(s, "one that collides with it", version, {"name": dotted.replace(".", "_")})
    twice = s.name()
    _create(s, "twice in one request", version, {"name": twice}, {"name": twice})
    _create(s, "nothing", version)
    first, second = s.name(), s.name()
    _create(
        s, "two, one of them bad", version, {"name": first}, {"name": second, "num_partitions": 0}
    )


@case(Api.CREATE_TOPICS)
def numbers(s: Session, version: int) -> None:
    for what, partitions, factor in (
        ("three partitions", 3, 1),
        ("no partitions", 0, 1),
        ("-2 partitions", -2, 1),
        ("factor 0", 1, 0),
        ("factor 2 of one broker", 1, 2),
        ("factor -2", 1, -2),
        ("nothing right", 0, 0),
    ):
        _create(
            s,
            what,
            version,
            {"name": s.name(), "num_partitions": partitions, "replication_factor": factor},
        )
    if version >= 4:
        _create(
            s,
            "defaults",
            version,
            {"name": s.name(), "num_partitions": -1, "replication_factor": -1},
        )
        _create(
            s,
            "default factor",
            version,
            {"name": s.name(), "num_partitions": 2, "replication_factor": -1},
        )
    else:
        s.ask(
            "default partitions before they were known",
            Api.CREATE_TOPICS,
            version,
            timeout=5000,
            topics=[{"name": s.name(), "num_partitions": -1, "replication_factor": 1}],
        )
    _create(s, "only validated", version, {"name": s.name("v")}, validate_only=True)
    _create(
        s,
        "validated and bad",
        version,
        {"name": s.name("v"), "num_partitions": 0},
        validate_only=True,
    )
    _create(s, "no time", version, {"name": s.name("late")}, timeout=60_000)


@case(Api.CREATE_TOPICS)
def assignments(s: Session, version: int) -> None:
    def assign(what: str, *lists: list[int], start: int = 0, **more: Any) -> None:
        given = [{"partition_index": start + n, "broker_ids": ids} for n, ids in enumerate(lists)]
        topic = {"name": s.name(), "num_partitions": -1, "replication_factor": -1}
        _create(s, what, version, topic | {"assignments": given} | more)

    assign("one partition", [1])
    assign("two partitions", [1], [1])
    assign("an unknown broker", [7])
    assign("a broker twice", [1, 1])
    assign("no brokers", [])
    assign("not from zero", [1], start=1)
    assign("uneven", [1], [1, 2])
    assign("with a number of partitions", [1], num_partitions=1)
    assign("with a factor", [1], replication_factor=1)
    given = [{"partition_index": 0, "broker_ids": [1]}, {"partition_index": 0, "broker_ids": [1]}]
    _create(
        s,
        "the same partition twice",
        version,
        {"name": s.name(), "num_partitions": -1, "replication_factor": -1, "assignments": given},
    )


@case(Api.CREATE_TOPICS)
def configs(s: Session, version: int) -> None:
    def configure(what: str, *pairs: tuple[str, str | None]) -> None:
        given = [{"name": key, "value": value} for key, value in pairs]
        _create(s, what, version, {"name": s.name(), "configs": given})

    configure("retention", ("retention.ms", "1000"))
    configure("two", ("cleanup.policy", "compact"), ("segment.bytes", "2000000"))
    configure("both policies", ("cleanup.policy", "compact,delete"))
    configure("unknown", ("no.such.config", "1"))
    configure("not a number", ("retention.ms", "soon"))
    configure("too small", ("segment.bytes", "1"))
    configure("a small segment", ("segment.bytes", "2000"))
    configure("a bad choice", ("cleanup.policy", "burn"))
    configure("null", ("retention.ms", None))
    configure("empty", ("cleanup.policy", ""))
    configure("twice", ("retention.ms", "1"), ("retention.ms", "2"))
    configure("spaces around", ("retention.ms", " 1000 "))
    configure("a boolean", ("preallocate", "TRUE"))
    configure("not a boolean", ("preallocate", "maybe"))
    configure(
        "compaction lags crossed", ("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")
    )
    configure("-1 where allowed", ("retention.bytes", "-1"), ("retention.ms", "-1"))
    configure("-2 where -1 is the least", ("retention.ms", "-2"))


@case(Api.DELETE_TOPICS)
def deletion(s: Session, version: int) -> None:
    def delete(what: str, *names: str, **more: Any) -> None:
        s.ask(
            what,
            Api.DELETE_TOPICS,
            version,
            topic_names=list(names),
            topics=[{"name": name, "topic_id": None} for name in names],
            **{"timeout": 5000} | more,
        )

    one, two = s.topic(), s.topic(2)
    delete("one", one)
    s.wait_for_no_topic(one)
    delete("again", one)
    delete("unknown", s.name("unknown"))
    delete("nothing")
    delete("empty name", "")
    delete("bad name", "a b")
    delete("twice and unknown", two, two, s.name("unknown"))
    three = s.topic()
    delete("one and unknown", s.name("unknown"), three)


@case(Api.DELETE_TOPICS, first=6)
def deletion_by_id(s: Session, version: int) -> None:
    one, two = s.topic(), s.topic()
    known = s.topic_id(one)

    def delete(what: str, *topics: dict[str, Any]) -> None:
        s.ask(what, Api.DELETE_TOPICS, version, topics=list(topics), timeout=5000)

    delete("known", {"name": None, "topic_id": known})
    s.wait_for_no_topic(one)
    delete("again", {"name": None, "topic_id": known})
    delete("unknown", {"name": None, "topic_id": _STRANGER})
    delete("neither name nor id", {"name": None, "topic_id": None})
    delete("name and id", {"name": two, "topic_id": s.topic_id(two)})
    delete("name and a wrong id", {"name": two, "topic_id": _STRANGER})
    other = {"name": None, "topic_id": s.topic_id(two)}
    delete("by name and by id at once", {"name": two, "topic_id": None}, other)
    s.note("still there", int(s.metadata(two).error_code), Api.DELETE_TOPICS)


@case(Api.CREATE_PARTITIONS)
def more_partitions(s: Session, version: int) -> None:
    def grow(what: str, *topics: dict[str, Any], **more: Any) -> None:
        wanted = [{"assignments": None} | each for each in topics]
        s.ask(what, Api.CREATE_PARTITIONS, version, topics=wanted, **{"timeout": 5000} | more)

    name = s.topic(2)
    grow("more, validated only", {"name": name, "count": 3}, validate_only=True)
    grow("more", {"name": name, "count": 3})
    s.wait_for_topic(name, 3)
    grow("as many", {"name": name, "count": 3})
    grow("fewer", {"name": name, "count": 1})
    grow("none", {"name": name, "count": 0})
    grow("negative", {"name": name, "count": -1})
    grow("unknown", {"name": s.name("unknown"), "count": 3})
    grow("empty name", {"name": "", "count": 3})
    grow("nothing")
    grow("twice", {"name": name, "count": 5}, {"name": name, "count": 6})
    grow("assigned", {"name": name, "count": 4, "assignments": [{"broker_ids": [1]}]})
    s.wait_for_topic(name, 4)
    for what, lists in (
        ("an unknown broker", [[9]]),
        ("too many lists", [[1], [1]]),
        ("too few lists", []),
        ("an empty list", [[]]),
        ("a broker twice", [[1, 1]]),
        ("another factor", [[1, 2]]),
    ):
        grow(
            what, {"name": name, "count": 5, "assignments": [{"broker_ids": ids} for ids in lists]}
        )
    internal = {"name": "__consumer_offsets", "count": 1}
    grow("fewer of an internal one", internal, validate_only=True)
    grow("fewer, validated only", {"name": name, "count": 1}, validate_only=True)
    s.note("partitions in the end", len(s.metadata(name).partitions), Api.CREATE_PARTITIONS)
    other = s.topic()
    grow("one good, one bad", {"name": other, "count": 2}, {"name": name, "count": 1})
