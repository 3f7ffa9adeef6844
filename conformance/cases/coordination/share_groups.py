"""Share groups: heartbeats, what members are given and say, the states behind it, and offsets."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from conformance.cases.coordination.membership import ready
from conformance.connection import Connection
from conformance.registry import case
from conformance.session import Session
from moldau.broker.coordination.share.state import topic_id_text
from moldau.wire.apis import Api

_BEAT, _DESCRIBE = Api.SHARE_GROUP_HEARTBEAT, Api.SHARE_GROUP_DESCRIBE
_FETCH, _SAY = Api.SHARE_FETCH, Api.SHARE_ACKNOWLEDGE
_ACCEPT, _RELEASE, _REJECT, _RENEW = 1, 2, 3, 4
_GROUP_RESOURCE = 32


class Group:
    """A share group on a topic; each member is known with its epochs."""

    def __init__(self, s: Session, partitions: int = 1) -> None:
        self.s, self.id = s, s.name("g")
        self.topic = s.topic(partitions)
        self.topic_id: UUID = s.topic_id(self.topic)
        self.epochs: dict[str, int] = {}
        ready(s)
        entry = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
        resource = {"resource_type": _GROUP_RESOURCE, "resource_name": self.id, "configs": [entry]}
        s.quietly(Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)

    def beat(self, what: str, member: str, epoch: int | None = None, **more: Any) -> Any:
        values: dict[str, Any] = {
            "group_id": self.id,
            "member_id": member,
            "member_epoch": self.epochs.get(member, 0) if epoch is None else epoch,
            "rack_id": None,
            "subscribed_topic_names": None,
        }
        answer = self.s.ask(what, _BEAT, 1, **(values | more))
        if answer is not None and int(answer.error_code) == 0:
            self.epochs[member] = answer.member_epoch
        return answer

    def join(self, member: str) -> None:
        """Have a member in the group that has been assigned something."""

        def is_in() -> bool:
            values: dict[str, Any] = {
                "member_epoch": self.epochs.get(member, 0),
                "subscribed_topic_names": None,
            }
            if member not in self.epochs:
                values["subscribed_topic_names"] = [self.topic]
            answer = self.s.quietly(
                _BEAT, 1, group_id=self.id, member_id=member, rack_id=None, **values
            )
            if int(answer.error_code) != 0:
                return False
            self.epochs[member] = answer.member_epoch
            assignment = answer.assignment
            return assignment is not None and bool(assignment.topic_partitions)

        self.s.until(is_in, "an assignment")


class Member:
    """A member of a share group, on a connection of its own."""

    def __init__(self, group: Group, name: str = "m") -> None:
        self.s, self.group, self.name = group.s, group, name
        self.via: Connection = group.s.connect()
        self.epoch = 0

    def _values(self, said: Any, epoch: int | None, partitions: tuple[int, ...]) -> dict[str, Any]:
        used = self.epoch if epoch is None else epoch
        each = [
            {
                "partition_index": index,
                "acknowledgement_batches": [
                    {"first_offset": a, "last_offset": b, "acknowledge_types": kinds}
                    for a, b, kinds in (said if index == 0 else ())
                ],
            }
            for index in partitions
        ]
        return {
            "group_id": self.group.id,
            "member_id": self.name,
            "share_session_epoch": used,
            "topics": [{"topic_id": self.group.topic_id, "partitions": each}],
        }

    def fetch(
        self,
        what: str,
        version: int,
        said: Any = (),
        epoch: int | None = None,
        partitions: tuple[int, ...] = (0,),
        **more: Any,
    ) -> Any:
        values = {
            **self._values(said, epoch, partitions),
            "max_wait": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "forgotten_topics_data": [],
        }
        if epoch is None:
            self.epoch += 1
        return self.s.ask(what, _FETCH, version, via=self.via, **(values | more))

    def take(self, version: int) -> None:
        """Fetch until there is something, without comparing."""

        def has_taken() -> bool:
            values = {
                **self._values((), None, (0,)),
                "max_wait": 500,
                "min_bytes": 1,
                "max_records": 500,
                "batch_size": 500,
                "forgotten_topics_data": [],
            }
            self.epoch += 1
            answer = self.via.ask(_FETCH, version, values)
            return any(
                each.acquired_records for topic in answer.responses for each in topic.partitions
            )

        self.s.until(has_taken, "records")

    def say(self, what: str, version: int, said: Any, epoch: int | None = None, **more: Any) -> Any:
        values = self._values(said, epoch, (0,))
        if epoch is None:
            self.epoch += 1
        return self.s.ask(what, _SAY, version, via=self.via, **(values | more))


@case(_BEAT)
def heartbeats(s: Session, version: int) -> None:
    group = Group(s)
    group.beat("no topics", "m", 0)
    group.beat("no member", "", 0, subscribed_topic_names=[group.topic])
    group.beat("an empty rack", "m", 0, rack_id="", subscribed_topic_names=[group.topic])
    group.beat("a wrong epoch", "m", -2, subscribed_topic_names=[group.topic])
    group.beat("no group", "m", 1)
    group.beat("leaves no group", "m", -1)
    group.join("m")
    group.beat("a later epoch", "m", group.epochs["m"] + 5)
    group.beat("a stranger", "x", 1)
    group.beat("a stranger leaves", "x", -1)
    group.beat("leaves", "m", -1)


@case(_BEAT)
def a_group_of_another_kind(s: Session, version: int) -> None:
    group = Group(s)
    joined = s.quietly(
        Api.JOIN_GROUP, 3, group_id=group.id, session_timeout=10_000, rebalance_timeout=10_000,
        member_id="", protocol_type="consumer", protocols=[{"name": "range", "metadata": b""}],
    )  # fmt: skip
    assert int(joined.error_code) == 0
    group.beat("joins", "m", 0, subscribed_topic_names=[group.topic])
    s.ask(
        "is described", _DESCRIBE, 1, group_ids=[group.id, s.name("none")],
        include_authorized_operations=False,
    )  # fmt: skip


@case(_FETCH)
def working_off(s: Session, version: int) -> None:
    group = Group(s)
    s.fill(group.topic, s.batch(b"a", b"b", b"c"), s.batch(b"d"))
    group.join("m")
    member = Member(group)
    member.take(version)
    member.fetch("some are done", version, [(0, 1, [_ACCEPT]), (2, 3, [_RELEASE, _REJECT])])
    member.fetch("what was released", version)
    member.fetch("all is done", version, [(2, 2, [_ACCEPT])])
    member.fetch("the end", version, epoch=-1)
    member.fetch("after the end", version)


@case(_FETCH)
def sessions(s: Session, version: int) -> None:
    group = Group(s)
    s.fill(group.topic, s.batch(b"a"))
    group.join("m")
    member = Member(group)
    member.fetch("no session", version, epoch=3)
    member.fetch("the end of none", version, epoch=-1)
    member.take(version)
    member.fetch("a wrong epoch", version, epoch=77)
    member.fetch("acknowledges as it begins", version, [(0, 0, [_ACCEPT])], epoch=0)
    member.fetch("an unknown partition", version, partitions=(0, 9), epoch=0)


@case(_FETCH, first=2)
def a_limit(s: Session, version: int) -> None:
    group = Group(s)
    s.fill(group.topic, s.batch(*[b"x"] * 10))
    group.join("m")
    member = Member(group)
    member.take(version)
    member.say("all back", version, [(0, 9, [_RELEASE])])
    member.fetch("three", version, max_records=3, share_acquire_mode=1)
    member.fetch("another mode", version, max_records=3, share_acquire_mode=5)


@case(_SAY)
def bad_ranges(s: Session, version: int) -> None:
    group = Group(s)
    s.fill(group.topic, s.batch(b"a", b"b", b"c"))
    group.join("m")
    member = Member(group)
    member.take(version)
    for what, said in (
        ("backwards", [(1, 0, [_ACCEPT])]),
        ("out of order", [(2, 2, [_ACCEPT]), (0, 0, [_ACCEPT])]),
        ("no kind", [(0, 0, [])]),
        ("too few kinds", [(0, 2, [_ACCEPT, _ACCEPT])]),
        ("too many kinds", [(0, 0, [_ACCEPT, _ACCEPT])]),
        ("an unknown kind", [(0, 0, [5])]),
        ("a renewal that is none", [(0, 0, [_RENEW])]),
        ("beyond what was given", [(0, 7, [_ACCEPT])]),
        ("an overlap", [(0, 1, [_ACCEPT]), (1, 2, [_ACCEPT])]),
        ("all of it", [(0, 2, [_ACCEPT])]),
        ("again", [(0, 2, [_ACCEPT])]),
    ):
        member.say(what, version, said)


@case(_SAY)
def sessions_of_acknowledgements(s: Session, version: int) -> None:
    group = Group(s)
    s.fill(group.topic, s.batch(b"a"))
    group.join("m")
    member, other = Member(group), Member(group, "other")
    member.say("no session", version, [(0, 0, [_ACCEPT])], epoch=1)
    member.say("a first request", version, [(0, 0, [_ACCEPT])], epoch=0)
    member.take(version)
    member.say("a wrong epoch", version, [(0, 0, [_ACCEPT])], epoch=50)
    other.fetch("somebody else", version)
    other.say("of another's record", version, [(0, 0, [_ACCEPT])])
    member.say("and the end", version, [(0, 0, [_ACCEPT])], epoch=-1)


@case(_SAY, first=2)
def renewals(s: Session, version: int) -> None:
    group = Group(s)
    s.fill(group.topic, s.batch(b"a"))
    group.join("m")
    member = Member(group)
    member.take(version)
    member.say("renews", version, [(0, 0, [_RENEW])], is_renew_ack=True)
    member.say("accepts", version, [(0, 0, [_ACCEPT])])


class States:
    """The state of a partition for a group, as leaders and coordinators ask for it."""

    def __init__(self, s: Session) -> None:
        self.s, self.group = s, s.name("g")
        self.topic_id = s.topic_id(s.topic())
        key = f"{self.group}:{topic_id_text(self.topic_id)}:0"

        def there() -> bool:
            found = s.quietly(Api.FIND_COORDINATOR, 6, key_type=2, coordinator_keys=[key])
            if int(found.coordinators[0].error_code) != 0:
                return False
            answer = s.quietly(Api.READ_SHARE_GROUP_STATE_SUMMARY, 0, **self._values({}))
            return int(answer.results[0].partitions[0].error_code) not in (14, 15, 16)

        s.until(there, "share coordinator")

    def _values(self, more: dict[str, Any], **other: Any) -> dict[str, Any]:
        partition = {"partition": 0, "leader_epoch": 0} | more
        topics = [{"topic_id": self.topic_id, "partitions": [partition]}]
        return {"group_id": self.group, "topics": topics} | other

    def ask(self, what: str, api: Api, version: int, **more: Any) -> None:
        values = self._values(more)
        if api in (Api.INITIALIZE_SHARE_GROUP_STATE, Api.DELETE_SHARE_GROUP_STATE):
            del values["topics"][0]["partitions"][0]["leader_epoch"]
        self.s.ask(what, api, version, **values)

    def begin(self) -> None:
        values = self._values({"state_epoch": 0, "start_offset": 0})
        del values["topics"][0]["partitions"][0]["leader_epoch"]
        self.s.quietly(Api.INITIALIZE_SHARE_GROUP_STATE, 0, **values)


def _batch(first: int, last: int, state: int, count: int = 1) -> dict[str, int]:
    return {
        "first_offset": first, "last_offset": last, "delivery_state": state,
        "delivery_count": count,
    }  # fmt: skip


@case(Api.WRITE_SHARE_GROUP_STATE)
def states(s: Session, version: int) -> None:
    states = States(s)
    write, read = Api.WRITE_SHARE_GROUP_STATE, Api.READ_SHARE_GROUP_STATE
    summary = Api.READ_SHARE_GROUP_STATE_SUMMARY

    def put(what: str, **more: Any) -> None:
        values = {"state_epoch": 0, "start_offset": -1, "state_batches": []}
        if version >= 1:
            values["delivery_complete_count"] = 0
        states.ask(what, write, version, **(values | more))

    states.ask("read before it begins", read, 0)
    put("written before it begins")
    states.ask("a summary before it begins", summary, 0)
    states.begin()
    states.ask("read when it has begun", read, 0)
    put("one batch", start_offset=0, state_batches=[_batch(0, 4, 2)])
    put("over another", state_batches=[_batch(3, 6, 0), _batch(7, 7, 4, 2)])
    states.ask("read", read, 0)
    put("further on", start_offset=5)
    states.ask("read again", read, 0, leader_epoch=3)
    put("an earlier leader", leader_epoch=2)
    put("the same leader", leader_epoch=3)
    states.ask("read by an earlier leader", read, 0, leader_epoch=1)
    states.ask("a summary", summary, 0)
    put("no partition", partition=-1)
    put("an unknown partition", partition=8)


@case(Api.INITIALIZE_SHARE_GROUP_STATE)
def beginnings(s: Session, version: int) -> None:
    states = States(s)
    begin, delete = Api.INITIALIZE_SHARE_GROUP_STATE, Api.DELETE_SHARE_GROUP_STATE
    states.ask("an unknown partition", begin, 0, partition=7, state_epoch=0, start_offset=0)
    states.ask("no partition", begin, 0, partition=-1, state_epoch=0, start_offset=0)
    states.ask("begins", begin, 0, state_epoch=2, start_offset=5)
    states.ask("an earlier epoch", begin, 0, state_epoch=1, start_offset=0)
    states.ask("read", Api.READ_SHARE_GROUP_STATE, 0)
    states.ask("deleted", delete, 0)
    states.ask("deleted again", delete, 0)
    states.ask("read after that", Api.READ_SHARE_GROUP_STATE, 0)


@case(Api.DESCRIBE_SHARE_GROUP_OFFSETS)
def offsets(s: Session, version: int) -> None:
    group = Group(s)
    describe, alter = Api.DESCRIBE_SHARE_GROUP_OFFSETS, Api.ALTER_SHARE_GROUP_OFFSETS
    delete = Api.DELETE_SHARE_GROUP_OFFSETS
    topics = [{"topic_name": group.topic, "partitions": [0, 5]}]

    def show(what: str, wanted: Any) -> None:
        s.ask(what, describe, version, groups=[{"group_id": group.id, "topics": wanted}])

    def set_to(what: str, start: int) -> None:
        each = [{"partition_index": 0, "start_offset": start}]
        s.ask(what, alter, 0, group_id=group.id,
              topics=[{"topic_name": group.topic, "partitions": each}])  # fmt: skip

    def forget(what: str, name: str) -> None:
        s.ask(what, delete, 0, group_id=group.id, topics=[{"topic_name": name}])

    show("no group", None)
    set_to("set, without a group", 0)
    forget("forgotten, without a group", group.topic)
    s.fill(group.topic, s.batch(b"a", b"b", b"c"))
    group.join("m")
    member = Member(group)
    member.take(1)
    member.say("done", 1, [(0, 1, [_ACCEPT])])
    show("of these", topics[:1] and [{"topic_name": group.topic, "partitions": [0]}])
    set_to("set, while somebody reads", 0)
    forget("forgotten, while somebody reads", group.topic)
    member.say("the end", 1, (), epoch=-1)
    group.beat("leaves", "m", -1)
    set_to("set", 1)
    show("all", None)
    forget("of no topic", s.name("none"))
