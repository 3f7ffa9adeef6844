"""OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from conformance.cases.coordination.groups import commit
from conformance.cases.coordination.membership import Member, ready, stable
from conformance.registry import case
from conformance.session import Session
from moldau.wire.apis import Api

_STRANGER = UUID(int=0x1234_5678_9ABC_4DEF_8000_0000_0000_0005)


def _partition(index: int = 0, offset: int = 5, **more: Any) -> dict[str, Any]:
    values = {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    return values | more


def _commit(
    s: Session, what: str, version: int, group: str, topic: str, *partitions: Any, **more: Any
) -> None:
    values: dict[str, Any] = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": -1,
        "topics": [
            {
                "name": topic,
                "topic_id": s.topic_id(topic) if topic else None,
                "partitions": list(partitions),
            }
        ],
    }
    s.ask(what, Api.OFFSET_COMMIT, version, **values | more)


def _fetch(s: Session, what: str, version: int, group: str, topics: Any, **more: Any) -> None:
    """`topics` is a list of names and partitions, or None for all."""
    given = None
    if topics is not None:
        given = [{"name": name, "partition_indexes": indexes} for name, indexes in topics]
    groups = [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": given}]
    values: dict[str, Any] = {
        "group_id": group,
        "topics": given,
        "groups": groups,
        "require_stable": False,
    }
    s.ask(what, Api.OFFSET_FETCH, version, **values | more)


@case(Api.OFFSET_COMMIT)
def commits_from_outside(s: Session, version: int) -> None:
    ready(s)
    group, topic = s.name("g"), s.topic(2)
    _commit(s, "one", version, group, topic, _partition())
    _commit(s, "two", version, group, topic, _partition(0, 6), _partition(1, 7))
    _commit(s, "with metadata", version, group, topic, _partition(committed_metadata="note"))
    _commit(s, "null metadata", version, group, topic, _partition(committed_metadata=None))
    _commit(s, "an epoch", version, group, topic, _partition(committed_leader_epoch=3))
    _commit(s, "offset zero", version, group, topic, _partition(offset=0))
    _commit(s, "offset -1", version, group, topic, _partition(offset=-1))
    _commit(s, "offset -5", version, group, topic, _partition(offset=-5))
    _commit(s, "beyond the end", version, group, topic, _partition(offset=10**12))
    _commit(s, "much metadata", version, group, topic, _partition(committed_metadata="x" * 5000))
    _commit(s, "just enough", version, group, topic, _partition(committed_metadata="x" * 4096))
    _commit(s, "an unknown partition", version, group, topic, _partition(9))
    _commit(s, "a negative partition", version, group, topic, _partition(-1))
    _commit(s, "known and unknown", version, group, topic, _partition(9), _partition(1))
    _commit(s, "no partitions", version, group, topic)
    _commit(s, "no topics", version, group, topic, topics=[])
    _commit(s, "the same twice", version, group, topic, _partition(0, 1), _partition(0, 2))
    unknown = {"name": s.name("unknown"), "topic_id": _STRANGER, "partitions": [_partition()]}
    _commit(s, "an unknown topic", version, group, topic, topics=[unknown])
    _commit(s, "with a time to live", version, group, topic, _partition(), retention_time=60_000)
    known = {"name": topic, "topic_id": s.topic_id(topic), "partitions": [_partition()]}
    _commit(s, "one topic known, one not", version, group, topic, topics=[unknown, known])
    _commit(s, "an empty group", version, "", topic, _partition())
    _commit(s, "a member nobody knows", version, group, topic, _partition(), member_id="nobody")
    outsider = {"generation_id_or_member_epoch": 3, "member_id": "nobody"}
    _commit(s, "a generation nobody knows", version, group, topic, _partition(), **outsider)
    fresh = s.name("g")
    _commit(s, "a generation of no group", version, fresh, topic, _partition(), **outsider)
    _fetch(s, "what is kept", 7, group, [(topic, [0, 1, 9])])


@case(Api.OFFSET_COMMIT)
def commits_of_members(s: Session, version: int) -> None:
    ready(s)
    group, topic = s.name("g"), s.topic()
    member = Member(s, group)
    member.join("joined")

    def send(what: str, **more: Any) -> None:
        values = {"generation_id_or_member_epoch": member.generation, "member_id": member.id}
        _commit(s, what, version, group, topic, _partition(), **values | more)

    send("before it synced")
    member.sync("synced", assignments=[{"member_id": member.id, "assignment": b"all"}])
    send("right")
    send("an old generation", generation_id_or_member_epoch=0)
    send("a future generation", generation_id_or_member_epoch=7)
    send("no generation", generation_id_or_member_epoch=-1)
    send("another member", member_id="nobody")
    send("no member", member_id="")
    send("neither", member_id="", generation_id_or_member_epoch=-1)
    if version >= 7:
        send("an unknown instance", group_instance_id="nobody")
    member.leave("left")
    send("after it left")
    send("from outside then", member_id="", generation_id_or_member_epoch=-1)


@case(Api.OFFSET_FETCH)
def what_was_committed(s: Session, version: int) -> None:
    ready(s)
    group, topic, other = s.name("g"), s.topic(3), s.topic()
    commit(s, group, topic, 11)
    commit(s, group, other, 12)
    _fetch(s, "one", version, group, [(topic, [0])])
    _fetch(s, "with some that have none", version, group, [(topic, [2, 0, 1])])
    _fetch(s, "an unknown partition", version, group, [(topic, [9, -1])])
    _fetch(s, "an unknown topic", version, group, [(s.name("unknown"), [0])])
    _fetch(s, "two topics", version, group, [(other, [0]), (topic, [0])])
    _fetch(s, "the same twice", version, group, [(topic, [0, 0])])
    _fetch(s, "no partitions", version, group, [(topic, [])])
    _fetch(s, "no topics", version, group, [])
    _fetch(s, "an unknown group", version, s.name("unknown"), [(topic, [0])])
    _fetch(s, "an empty group", version, "", [(topic, [0])])
    if version >= 2:
        _fetch(s, "all", version, group, None)
        _fetch(s, "all of an unknown group", version, s.name("unknown"), None)
    if version >= 7:
        _fetch(s, "stable ones", version, group, [(topic, [0])], require_stable=True)


@case(Api.OFFSET_FETCH, first=8)
def several_groups(s: Session, version: int) -> None:
    ready(s)
    one, two, topic = s.name("g"), s.name("g"), s.topic()
    commit(s, one, topic, 11)
    commit(s, two, topic, 12)
    wanted = [{"name": topic, "partition_indexes": [0]}]

    def ask(what: str, *groups: dict[str, Any], **more: Any) -> None:
        given = [
            {"member_id": None, "member_epoch": -1, "topics": wanted} | each for each in groups
        ]
        s.ask(what, Api.OFFSET_FETCH, version, groups=given, require_stable=False, **more)

    ask("two", {"group_id": two}, {"group_id": one})
    ask("twice the same", {"group_id": one}, {"group_id": one})
    ask("one unknown", {"group_id": s.name("unknown")}, {"group_id": one, "topics": None})
    ask("one empty", {"group_id": ""}, {"group_id": one})
    ask("none")
    if version >= 9:
        member = stable(s, s.name("g"))
        mine = {"group_id": member.group, "member_id": member.id}
        ask("as a member", mine | {"member_epoch": member.generation})
        ask("as a member of another epoch", mine | {"member_epoch": 9})
        ask("as a stranger", mine | {"member_id": "nobody", "member_epoch": 1})


@case(Api.OFFSET_DELETE)
def deletion(s: Session, version: int) -> None:
    ready(s)
    group, topic, other = s.name("g"), s.topic(2), s.topic()
    commit(s, group, topic, 11)
    commit(s, group, other, 12)

    def delete(what: str, name: str, *partitions: int, **more: Any) -> None:
        given = [{"partition_index": index} for index in partitions]
        values = {"group_id": group, "topics": [{"name": name, "partitions": given}]}
        s.ask(what, Api.OFFSET_DELETE, version, **values | more)

    delete("one", topic, 0)
    delete("again", topic, 0)
    delete("an unknown partition", topic, 9)
    delete("an unknown topic", s.name("unknown"), 0)
    delete("no partitions", topic)
    delete("no topics", topic, topics=[])
    delete("an unknown group", topic, 0, group_id=s.name("unknown"))
    delete("an empty group", topic, 0, group_id="")
    _fetch(s, "what is left", 7, group, [(topic, [0]), (other, [0])])
    member = stable(s, group)
    delete("with a member whose subscription is unreadable", other, 0)
    member.leave("left")
    delete("the last", other, 0)


@case(Api.OFFSET_DELETE)
def subscribed_topics(s: Session, version: int) -> None:
    ready(s)
    group, topic, other = s.name("g"), s.topic(), s.topic()
    commit(s, group, topic)
    commit(s, group, other)
    name = topic.encode()
    # Version 0 of a consumer's subscription: one topic, no user data.
    metadata = b"\0\0\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"
    member = Member(s, group)
    member.join("joined", protocols=[{"name": "range", "metadata": metadata}])
    member.sync("synced", assignments=[{"member_id": member.id, "assignment": b""}])
    for what, wanted in (("a topic that is read", topic), ("one that is not", other)):
        given = [{"name": wanted, "partitions": [{"partition_index": 0}]}]
        s.ask(what, Api.OFFSET_DELETE, version, group_id=group, topics=given)
