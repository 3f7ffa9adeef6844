"""Fetch: positions, limits, sessions, and what is wrong with a request."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from conformance.registry import case
from conformance.session import Session
from moldau.records.compression import Codec
from moldau.wire.apis import Api

_STRANGER = UUID(int=0x1234_5678_9ABC_4DEF_8000_0000_0000_0004)
_MANY = 1 << 20


def wanted(partition: int = 0, offset: int = 0, **more: Any) -> dict[str, Any]:
    values = {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": _MANY,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
    }
    return values | more


class Reader:
    """Fetches from topics by name or id, whichever the version wants."""

    def __init__(self, s: Session, version: int) -> None:
        self.s, self.version = s, version
        self._ids: dict[str, UUID] = {}

    def key(self, name: str) -> dict[str, Any]:
        if name not in self._ids:
            self._ids[name] = s_id(self.s, name)
        return {"topic": name, "topic_id": self._ids[name]}

    def get(self, what: str, *topics: tuple[str, list[dict[str, Any]]], **more: Any) -> Any:
        asked = [self.key(name) | {"partitions": partitions} for name, partitions in topics]
        return self.ask(what, asked, **more)

    def ask(self, what: str, topics: list[dict[str, Any]], **more: Any) -> Any:
        values: dict[str, Any] = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": _MANY,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": topics,
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        return self.s.ask(what, Api.FETCH, self.version, **values | more)


def s_id(s: Session, name: str) -> UUID:
    return s.topic_id(name)


def _filled(s: Session, partitions: int = 1) -> str:
    name = s.topic(partitions)
    for partition in range(partitions):
        s.fill(
            name,
            s.batch(b"a", b"b", b"c"),
            s.batch(b"d" * 100, codec=Codec.GZIP),
            s.batch(b"e", b"f"),
            partition=partition,
        )
    return name


@case(Api.FETCH)
def positions(s: Session, version: int) -> None:
    reader, name = Reader(s, version), _filled(s)
    for offset in (0, 1, 3, 4, 5, 6, 7, 100, -1, -2):
        reader.get(f"offset {offset}", (name, [wanted(offset=offset)]))
    reader.get("read committed", (name, [wanted()]), isolation_level=1)
    reader.get("an isolation nobody knows", (name, [wanted()]), isolation_level=7)
    empty = s.topic()
    reader.get("an empty topic", (empty, [wanted()]))
    reader.get("beyond an empty topic", (empty, [wanted(offset=1)]))


@case(Api.FETCH)
def limits(s: Session, version: int) -> None:
    reader, name = Reader(s, version), _filled(s, 2)
    for size in (0, 1, 60, 100, 150, 200, 250, 300):
        reader.get(f"{size} of a partition", (name, [wanted(partition_max_bytes=size)]))
        both = [wanted(0), wanted(1)]
        reader.get(f"{size} in all", (name, both), max_bytes=size)
    reader.get("negative", (name, [wanted(partition_max_bytes=-1)]))
    reader.get("negative in all", (name, [wanted()]), max_bytes=-1)
    reader.get("a wait that is enough", (name, [wanted()]), max_wait=50, min_bytes=1)
    reader.get("more than there is", (name, [wanted()]), max_wait=50, min_bytes=100_000)
    reader.get("a negative wait", (name, [wanted()]), max_wait=-1, min_bytes=100_000)
    reader.get("negative least", (name, [wanted(offset=6)]), min_bytes=-1)
    reader.get("least of zero at the end", (name, [wanted(offset=6)]), min_bytes=0, max_wait=5000)


@case(Api.FETCH)
def strangers(s: Session, version: int) -> None:
    reader, name = Reader(s, version), _filled(s)
    unknown = {"topic": s.name("unknown"), "topic_id": _STRANGER, "partitions": [wanted()]}
    known = reader.key(name) | {"partitions": [wanted()]}
    reader.ask("an unknown topic", [unknown])
    reader.ask("an unknown one first", [unknown, known])
    reader.ask("an unknown one last", [known, unknown])
    reader.ask("no topics", [])
    reader.ask("no partitions", [reader.key(name) | {"partitions": []}])
    reader.ask("an empty name", [{"topic": "", "topic_id": None, "partitions": [wanted()]}])
    reader.get("an unknown partition", (name, [wanted(5)]))
    reader.get("a negative partition", (name, [wanted(-1)]))
    reader.get("known and unknown partitions", (name, [wanted(5), wanted(0), wanted(6)]))
    reader.get("the same twice", (name, [wanted(0), wanted(0, 3)]))
    reader.ask("the topic twice", [known, reader.key(name) | {"partitions": [wanted(0, 3)]}])


@case(Api.FETCH, first=9)
def epochs(s: Session, version: int) -> None:
    reader, name = Reader(s, version), _filled(s)
    for epoch in (0, 1, 5, -1, -2):
        reader.get(f"current epoch {epoch}", (name, [wanted(current_leader_epoch=epoch)]))
    if version >= 12:
        for epoch in (0, 1, -2):
            reader.get(f"fetched epoch {epoch}", (name, [wanted(last_fetched_epoch=epoch)]))
            reader.get(
                f"fetched epoch {epoch} from the middle",
                (name, [wanted(offset=4, last_fetched_epoch=epoch)]),
            )
            reader.get(
                f"fetched epoch {epoch} beyond the end",
                (name, [wanted(offset=40, last_fetched_epoch=epoch)]),
            )


@case(Api.FETCH)
def replicas(s: Session, version: int) -> None:
    reader, name = Reader(s, version), _filled(s)
    for replica in (1, 2, 99, -2, -3):
        state = {"replica_id": replica, "replica_epoch": -1}
        reader.get(
            f"as replica {replica}", (name, [wanted()]), replica_id=replica, replica_state=state
        )


@case(Api.FETCH, first=7)
def sessions(s: Session, version: int) -> None:
    reader, name = Reader(s, version), _filled(s, 3)
    three = [wanted(0), wanted(1, 6), wanted(2, 2)]
    answer = reader.get("a new session", (name, three), session_epoch=0)
    if answer is None:
        return
    number = answer.session_id

    def more(
        what: str, epoch: int, *topics: Any, session_id: int | None = None, **rest: Any
    ) -> Any:
        chosen = number if session_id is None else session_id
        return reader.get(what, *topics, session_id=chosen, session_epoch=epoch, **rest)

    more("nothing changed", 1)
    more("one moved on", 2, (name, [wanted(0, 6)]))
    more("one added that is unknown", 3, (name, [wanted(9)]))
    s.fill(name, s.batch(b"new"), partition=1)
    more("something new", 4)
    forgotten = [reader.key(name) | {"partitions": [2, 9]}]
    more("some forgotten", 5, forgotten_topics_data=forgotten)
    more("a wrong epoch", 99)
    more("the epoch after that", 6)
    more("an unknown session", 1, session_id=123_456_789)
    more("session zero, epoch one", 1, session_id=0)
    more("closed", -1, (name, [wanted(0)]))
    more("after it was closed", 7)
    more("a new one in place of an unknown one", 0, (name, [wanted(0)]), session_id=123_456_789)
    more("an epoch below -1", -5)
    reader.get("a session of nothing", session_epoch=0)


@case(Api.FETCH, newest=True)
def waiting(s: Session, version: int) -> None:
    reader, name = Reader(s, version), _filled(s)
    started = time.monotonic()
    reader.get("nothing comes", (name, [wanted(offset=6)]), max_wait=300)
    took = time.monotonic() - started
    s.note("waited", 0.25 < took < 1.5, Api.FETCH)
    other = s.connect()
    values = {
        "replica_id": -1,
        "max_wait": 10_000,
        "min_bytes": 1,
        "max_bytes": _MANY,
        "session_epoch": -1,
        "topics": [reader.key(name) | {"partitions": [wanted(offset=6)]}],
    }
    receive = s.send("something comes", Api.FETCH, version, other, **values)
    s.fill(name, s.batch(b"late"))
    receive()
    started = time.monotonic()
    reader.get("an error does not wait", (name, [wanted(offset=60)]), max_wait=5000)
    s.note("at once", time.monotonic() - started < 2, Api.FETCH)


@case(Api.FETCH, newest=True)
def old_messages(s: Session, version: int) -> None:
    """Append time is the broker's, and the largest timestamp of the batch with it."""
    name = s.topic(configs={"message.timestamp.type": "LogAppendTime"})
    s.fill(name, s.batch(b"a", b"b"))
    answer = s.quietly(
        Api.FETCH,
        12,
        replica_id=-1,
        max_bytes=_MANY,
        session_epoch=-1,
        topics=[{"topic": name, "partitions": [wanted()]}],
    )
    from moldau.records.batch import read_header

    header = read_header(bytes(answer.responses[0].partitions[0].records))
    s.note("attributes", header.attributes, Api.FETCH)
    s.note("the producer's first timestamp is kept", header.base_timestamp < s.now_ms, Api.FETCH)
    s.note("largest is now", header.max_timestamp >= s.now_ms, Api.FETCH)


@case(Api.FETCH, newest=True)
def after_deleted_records(s: Session, version: int) -> None:
    reader, name = Reader(s, version), _filled(s)
    s.quietly(
        Api.DELETE_RECORDS,
        2,
        timeout=5000,
        topics=[{"name": name, "partitions": [{"partition_index": 0, "offset": 4}]}],
    )
    for offset in (0, 3, 4, 5):
        reader.get(f"offset {offset}", (name, [wanted(offset=offset)]))
