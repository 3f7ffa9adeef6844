"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from typing import Any

from conformance.registry import case
from conformance.session import Session
from moldau.records.compression import Codec
from moldau.wire.apis import Api


def _filled(s: Session) -> tuple[str, int]:
    """A topic with records at known times, and the time of the first."""
    name, first = s.topic(2), s.now_ms - 1_000_000
    s.fill(
        name,
        s.batch(b"a", b"b", b"c", timestamp=first, step_ms=10),
        s.batch(b"d", b"e", timestamp=first + 100, step_ms=10, codec=Codec.GZIP),
        s.batch(b"f", timestamp=first + 50),
        s.batch(b"g", timestamp=first + 200),
        s.batch(b"h", timestamp=first + 150),
    )
    return name, first


def _wanted(timestamp: int, partition: int = 0, epoch: int = -1) -> dict[str, int]:
    return {
        "partition_index": partition,
        "timestamp": timestamp,
        "current_leader_epoch": epoch,
    }


def _list(s: Session, what: str, version: int, name: str, *partitions: Any, **more: Any) -> None:
    values: dict[str, Any] = {"replica_id": -1, "isolation_level": 0, "timeout": 5000}
    values["topics"] = [{"name": name, "partitions": list(partitions)}]
    s.ask(what, Api.LIST_OFFSETS, version, **values | more)


@case(Api.LIST_OFFSETS)
def times(s: Session, version: int) -> None:
    name, first = _filled(s)
    for ahead in (-1000, 0, 5, 10, 20, 21, 99, 100, 105, 110, 111, 150, 151, 200, 201):
        _list(s, f"{ahead} ms", version, name, _wanted(first + ahead))
    for special in (-1, -2, -3, -4, -5, -6, -7, 0):
        _list(s, f"special {special}", version, name, _wanted(special))
        _list(s, f"special {special} of an empty partition", version, name, _wanted(special, 1))
    _list(s, "a time in an empty partition", version, name, _wanted(first, 1))
    _list(s, "read committed", version, name, _wanted(-1), isolation_level=1)
    _list(s, "read committed, by time", version, name, _wanted(first + 100), isolation_level=1)
    _list(s, "several", version, name, _wanted(-2), _wanted(-1, 1))


@case(Api.LIST_OFFSETS)
def wrong_requests(s: Session, version: int) -> None:
    name, _ = _filled(s)
    _list(s, "an unknown topic", version, s.name("unknown"), _wanted(-1))
    _list(s, "an unknown partition", version, name, _wanted(-1, 7))
    _list(s, "a negative partition", version, name, _wanted(-1, -1))
    _list(s, "the same twice", version, name, _wanted(-1), _wanted(-2))
    _list(s, "twice and another", version, name, _wanted(-1), _wanted(-2), _wanted(-1, 1))
    _list(s, "no partitions", version, name)
    _list(s, "no topics", version, name, topics=[])
    both = [{"name": each, "partitions": [_wanted(-1)]} for each in (s.name("unknown"), name)]
    _list(s, "known and unknown", version, name, topics=both)
    _list(s, "the topic twice", version, name, topics=[both[1], both[1]])
    _list(s, "an isolation nobody knows", version, name, _wanted(-1), isolation_level=7)
    _list(s, "empty name", version, "", _wanted(-1))
    if version >= 4:
        for epoch in (0, 1, -2):
            _list(s, f"epoch {epoch}", version, name, _wanted(-1, epoch=epoch))
    for replica in (1, 7, -2, -3):
        _list(s, f"as replica {replica}", version, name, _wanted(-1), replica_id=replica)


@case(Api.LIST_OFFSETS, newest=True)
def append_time(s: Session, version: int) -> None:
    name = s.topic(configs={"message.timestamp.type": "LogAppendTime"})
    s.fill(name, s.batch(b"a", b"b"), s.batch(b"c", codec=Codec.LZ4))
    _list(s, "before", version, name, _wanted(s.now_ms + 86_400_000))
    answer = s.quietly(
        Api.LIST_OFFSETS,
        version,
        replica_id=-1,
        topics=[{"name": name, "partitions": [_wanted(s.now_ms - 5)]}],
    )
    s.note("the first of all", answer.topics[0].partitions[0].offset, Api.LIST_OFFSETS)
    answer = s.quietly(
        Api.LIST_OFFSETS,
        version,
        replica_id=-1,
        topics=[{"name": name, "partitions": [_wanted(-3)]}],
    )
    s.note("the largest time", answer.topics[0].partitions[0].offset in (0, 2), Api.LIST_OFFSETS)


@case(Api.OFFSET_FOR_LEADER_EPOCH)
def ends_of_epochs(s: Session, version: int) -> None:
    name, _ = _filled(s)

    def ask(what: str, *partitions: dict[str, int], topic: str = name, **more: Any) -> None:
        values: dict[str, Any] = {
            "replica_id": -2,
            "topics": [{"topic": topic, "partitions": list(partitions)}],
        }
        s.ask(what, Api.OFFSET_FOR_LEADER_EPOCH, version, **values | more)

    def of(epoch: int, partition: int = 0, current: int = -1) -> dict[str, int]:
        return {
            "partition": partition,
            "leader_epoch": epoch,
            "current_leader_epoch": current,
        }

    for epoch in (0, 1, 5, -1, -2):
        ask(f"epoch {epoch}", of(epoch))
        ask(f"epoch {epoch} of an empty partition", of(epoch, 1))
        ask(f"current epoch {epoch}", of(0, current=epoch))
    ask("an unknown partition", of(0, 9))
    ask("an unknown topic", of(0), topic=s.name("unknown"))
    ask("an empty name", of(0), topic="")
    ask("no partitions")
    ask("no topics", topics=[])
    ask("twice", of(0), of(1))
    for replica in (-1, 1, 7):
        ask(f"as replica {replica}", of(0), replica_id=replica)


@case(Api.DELETE_RECORDS)
def deletion(s: Session, version: int) -> None:
    name, _ = _filled(s)

    def delete(what: str, *partitions: tuple[int, int], topic: str = name, **more: Any) -> None:
        given = [{"partition_index": index, "offset": offset} for index, offset in partitions]
        values: dict[str, Any] = {"timeout": 5000, "topics": [{"name": topic, "partitions": given}]}
        s.ask(what, Api.DELETE_RECORDS, version, **values | more)

    delete("up to 2", (0, 2))
    delete("back to 1", (0, 1))
    delete("again", (0, 2))
    delete("beyond the end", (0, 100))
    delete("-2", (0, -2))
    delete("an unknown partition", (9, 1))
    delete("a negative partition", (-1, 1))
    delete("an unknown topic", (0, 1), topic=s.name("unknown"))
    delete("an empty name", (0, 1), topic="")
    delete("nothing of an empty partition", (1, 0))
    delete("no partitions")
    delete("no topics", topics=[])
    delete("twice", (0, 3), (0, 4))
    delete("two partitions, one wrong", (0, 5), (1, 5))
    delete("everything", (0, -1))
    _list(s, "what is left", 7, name, _wanted(-2), _wanted(-1, 1))
    delete("no time", (0, 8), timeout=0)
    compacted = s.topic(configs={"cleanup.policy": "compact"})
    s.fill(compacted, s.batch(b"a"))
    delete("a compacted topic", (0, 1), topic=compacted)
    delete("an internal topic", (0, 1), topic="__consumer_offsets")
