"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: epochs, assignments, and what is refused."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from conformance.cases.coordination.membership import Member, ready
from conformance.registry import case
from conformance.session import Session
from moldau.broker.coordination.groups.consumer.embedded import write_assignment
from moldau.wire.apis import Api
from moldau.wire.primitives import INT16, INT32, count, string

_BEAT, _DESCRIBE = Api.CONSUMER_GROUP_HEARTBEAT, Api.CONSUMER_GROUP_DESCRIBE
_OWNED = dict[UUID, frozenset[int]]


class Group:
    """One consumer group; each member is known with its epoch and what it has."""

    def __init__(self, s: Session, version: int = 1, name: str = "g") -> None:
        self.s, self.version, self.id = s, version, s.name(name)
        self.epochs: dict[str, int] = {}
        self.has: dict[str, _OWNED] = {}
        ready(s)

    def beat(self, what: str, member: str, epoch: int | None = None, **more: Any) -> Any:
        values: dict[str, Any] = {
            "group_id": self.id,
            "member_id": member,
            "member_epoch": self.epochs.get(member, 0) if epoch is None else epoch,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "topic_partitions": None,
        }
        answer = self.s.quietly(_BEAT, self.version, **(values | more))
        shown = self.s.symbols.plain(answer)
        if shown["assignment"] is not None:
            for each in shown["assignment"]["topic_partitions"]:
                # In Kafka in the order of a hash table.
                each["partitions"] = sorted(each["partitions"])
            shown["assignment"]["topic_partitions"].sort(key=lambda each: each["topic_id"])
        if member == "":
            shown["member_id"] = "(made)" if shown["member_id"] else None
        self.s.note(what, shown, _BEAT)
        if int(answer.error_code) == 0:
            self.epochs[member] = answer.member_epoch
            if answer.assignment is not None:
                self.has[member] = {
                    each.topic_id: frozenset(each.partitions)
                    for each in answer.assignment.topic_partitions
                }
        return answer

    def join(self, what: str, member: str, *topics: str, **more: Any) -> Any:
        values: dict[str, Any] = {"rebalance_timeout": 30_000, "topic_partitions": []}
        values["subscribed_topic_names"] = list(topics)
        return self.beat(what, member, 0, **(values | more))

    def follow(self, what: str, member: str, **more: Any) -> Any:
        """A heartbeat that says what the member has."""
        owned = [
            {"topic_id": topic, "partitions": sorted(partitions)}
            for topic, partitions in self.has.get(member, {}).items()
        ]
        return self.beat(what, member, topic_partitions=owned, **more)

    def settle(self, rounds: int = 3) -> None:
        for number in range(rounds):
            for member in list(self.epochs):
                self.follow(f"{member} follows ({number})", member)

    def describe(self, what: str, version: int = 1) -> None:
        answer = self.s.quietly(
            _DESCRIBE, version, group_ids=[self.id], include_authorized_operations=False
        )
        [found] = answer.groups
        shown = self.s.symbols.plain(found)
        shown["members"] = sorted(shown["members"], key=lambda member: member["member_id"])
        for member in shown["members"]:
            member["subscribed_topic_names"] = sorted(member["subscribed_topic_names"])
            for kind in ("assignment", "target_assignment"):
                for each in member[kind]["topic_partitions"]:
                    each["partitions"] = sorted(each["partitions"])
                member[kind]["topic_partitions"].sort(key=lambda each: each["topic_name"])
        self.s.note(what, shown, _DESCRIBE)


def coordinated(s: Session, version: int, partitions: int) -> str:
    """Return a new topic that coordinators know of: Kafka's hear of one after those who lead it."""
    topic = s.topic(partitions)
    values = {
        "group_id": f"{topic}-probe",
        "member_id": "probe",
        "rebalance_timeout": 30_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }

    def is_known() -> bool:
        answer = s.quietly(_BEAT, version, **values, member_epoch=0)
        assigned = answer.assignment.topic_partitions if answer.assignment is not None else ()
        s.quietly(_BEAT, version, **values, member_epoch=-1)
        return sum(len(each.partitions) for each in assigned) == partitions

    s.until(is_known, f"coordinator that knows of {topic}")
    return topic


@case(_BEAT)
def two_members(s: Session, version: int) -> None:
    topic, group = s.topic(4), Group(s, version)
    group.join("first", "a", topic)
    group.beat("a heartbeat", "a")
    group.join("second", "b", topic)
    group.describe("reconciling")
    group.beat("first is told", "a")
    group.beat("second waits", "b")
    group.follow("first gives up", "a")
    group.beat("second gets", "b")
    group.beat("full", "a", rebalance_timeout=30_000, subscribed_topic_names=[topic],
               topic_partitions=[])  # fmt: skip
    group.describe("stable")
    group.beat("first leaves", "a", -1)
    group.beat("second gets all", "b")
    group.describe("one left")
    group.beat("second leaves", "b", -1)
    group.describe("empty")
    group.beat("second again", "b", 3)


@case(_BEAT)
def many_members(s: Session, version: int) -> None:
    """The same assignments, whatever the order in which who comes and goes.

    Of more than sixteen partitions Kafka gives those up first that come last in a hash table, which
    depends on the order in which each was ever assigned.
    """
    for assignor, partitions in (
        ("uniform", 10),
        ("uniform", 16),
        ("uniform", 100),
        ("range", 40),
    ):
        group = Group(s, version, f"{assignor}-{partitions}-")
        topic = coordinated(s, version, partitions)
        for number in range(7):
            group.join(f"{number} joins", f"member-{number}", topic, server_assignor=assignor)
            group.settle(1)
        group.settle()
        group.describe("all there")
        for number in (2, 5):
            group.beat(f"{number} leaves", f"member-{number}", -1)
            del group.epochs[f"member-{number}"]
        group.settle()
        group.describe("two gone")
        group.join("another joins", "zz", topic, server_assignor=assignor)
        group.settle()
        group.describe("one more")


@case(_BEAT)
def changes(s: Session, version: int) -> None:
    one, two, group = s.topic(3), s.topic(2), Group(s, version)
    group.join("joins", "a", one)
    group.beat("wants both", "a", subscribed_topic_names=[one, two])
    group.settle()
    group.beat("wants one", "a", subscribed_topic_names=[two])
    group.settle()
    group.beat("wants none", "a", subscribed_topic_names=[])
    group.settle()
    group.beat("wants what is not there", "a", subscribed_topic_names=[s.name("unknown")])
    group.settle()
    group.describe("in the end")


@case(_BEAT)
def refusals(s: Session, version: int) -> None:
    topic, group = s.topic(2), Group(s, version)
    if version == 0:
        other = Group(s, version, "other")
        other.join("without a member id", "", topic)
    else:
        group.join("without a member id", "", topic)
    group.join("without a group id", "a", topic, group_id="")
    group.join("an empty instance id", "a", topic, instance_id="")
    group.join("an empty rack", "a", topic, rack_id="")
    group.join("no rebalance timeout", "a", topic, rebalance_timeout=-1)
    group.join("partitions", "a", topic, topic_partitions=None)
    group.join("no topics", "a", subscribed_topic_names=None)
    group.join("an unknown assignor", "a", topic, server_assignor="nonsense")
    group.beat("an unknown group", "a", 1)
    group.beat("leaves an unknown group", "a", -1)
    group.beat("no such epoch", "a", -3)
    group.beat("for now, without an instance", "a", -2)
    group.join("joins", "a", topic)
    group.beat("a greater epoch", "a", 7)
    group.join("joins again", "a", topic)
    group.beat("an unknown member", "b", 1)
    group.beat("an unknown member leaves", "b", -1)
    group.beat("an unknown instance", "a", 1, instance_id="i")
    group.join("another", "b", topic)
    group.beat("told", "a")
    group.follow("gives up", "a")
    group.beat("a smaller epoch", "a", 1)
    group.describe("unharmed")


@case(_BEAT)
def static_members(s: Session, version: int) -> None:
    topic, group = s.topic(2), Group(s, version)
    group.join("joins", "a", topic, instance_id="i")
    group.join("not released", "b", topic, instance_id="i")
    group.beat("fenced", "b", 1, instance_id="i")
    group.beat("leaves for now", "a", -2, instance_id="i")
    group.describe("away")
    group.join("is back", "b", topic, instance_id="i")
    group.describe("back")
    group.beat("the old one", "a", 1, instance_id="i")
    group.beat("leaves", "b", -1, instance_id="i")
    group.describe("gone")


@case(_DESCRIBE)
def descriptions(s: Session, version: int) -> None:
    topic, group = s.topic(2), Group(s)
    group.join("joins", "a", topic, rack_id="r")
    classic = Member(s, s.name("classic"))
    classic.join("a classic group")

    def describe(what: str, *groups: str, operations: bool = False) -> None:
        s.ask(what, _DESCRIBE, version, group_ids=list(groups),
              include_authorized_operations=operations)  # fmt: skip

    describe("unknown", s.name("unknown"))
    describe("empty name", "")
    describe("none")
    describe("one", group.id)
    describe("with operations", group.id, operations=True)
    describe("classic", classic.group)
    s.ask("as a classic one", Api.DESCRIBE_GROUPS, 6, groups=[group.id],
          include_authorized_operations=False)  # fmt: skip


@case(Api.OFFSET_COMMIT)
def commits_by_member_epoch(s: Session, version: int) -> None:
    if version < 7:
        return
    topic, group = s.topic(4), Group(s)
    ids = {topic: s.metadata(topic).topic_id}
    group.join("joins", "a", topic)
    group.join("second", "b", topic)
    group.beat("told", "a")

    def commit(what: str, member: str, epoch: int, *partitions: int) -> None:
        each = {"committed_offset": 1, "committed_metadata": "", "committed_leader_epoch": -1}
        found = [each | {"partition_index": number} for number in partitions]
        named = {"topic_id": ids[topic]} if version >= 10 else {"name": topic}
        s.ask(what, Api.OFFSET_COMMIT, version, group_id=group.id, member_id=member,
              generation_id_or_member_epoch=epoch,
              topics=[named | {"partitions": found}])  # fmt: skip

    commit("in its epoch", "a", 1, 0, 1, 2, 3)
    commit("in a later one", "a", 2, 0)
    commit("in an earlier one", "a", 0, 0)
    commit("of nobody", "x", 1, 0)
    commit("from outside", "", -1, 0)
    group.follow("gives up", "a")
    group.beat("gets", "b")
    kept = sorted(next(iter(group.has["a"].values())))
    commit("in the epoch before, of what it kept", "a", 1, *kept)
    commit("in the epoch before, of what it gave up", "a", 1, *sorted(set(range(4)) - set(kept)))
    commit("in the epoch before, both", "a", 1, 0, 1, 2, 3)
    commit("in its epoch, what it has not", "a", 2, 0, 1, 2, 3)


@case(Api.OFFSET_COMMIT, newest=True)
def commits_between_two_revocations(s: Session, version: int) -> None:
    """A member that has more to give up by the time that it has given something up stays in its
    epoch, in which its commits count whoever has the partition by now. In the next they do not."""
    topic, group = s.topic(4), Group(s)
    topic_id = s.metadata(topic).topic_id
    group.join("has all", "a", topic)
    all_four = set(range(4))
    group.join("is to have two", "b", topic)
    group.follow("is told to give up two", "a")
    first = sorted(all_four - group.has["a"][topic_id])
    group.join("is to have one", "c", topic)
    group.join("is to have one, too", "d", topic)

    def commit(what: str, member: str, offset: int, partition: int) -> None:
        part = {"partition_index": partition, "committed_offset": offset,
                "committed_leader_epoch": -1, "committed_metadata": ""}  # fmt: skip
        s.ask(what, Api.OFFSET_COMMIT, version, group_id=group.id, member_id=member,
              generation_id_or_member_epoch=group.epochs[member],
              topics=[{"topic_id": topic_id, "partitions": [part]}])  # fmt: skip

    before = group.epochs["a"]
    group.follow("has given up two, and is told to give up one more", "a")
    s.note("whether its epoch goes on", group.epochs["a"] == before)
    for member in ("b", "c", "d"):
        group.follow("gets what is free", member)
    for number, partition in enumerate(first):
        taker = next(each for each in "bcd" if partition in group.has[each].get(topic_id, ()))
        commit(f"of who has it ({number})", taker, 7, partition)
        commit(f"of who had it ({number})", "a", 4, partition)
    late = group.epochs["a"]
    group.follow("has given up all that it was told to", "a")
    group.epochs["a"], now = late, group.epochs["a"]
    s.note("whether its epoch is over", now > late)
    for number, partition in enumerate(first):
        commit(f"of who had it, late ({number})", "a", 5, partition)


@case(Api.OFFSET_FETCH)
def fetches_by_member_epoch(s: Session, version: int) -> None:
    if version < 9:
        return
    topic, group = s.topic(1), Group(s)
    group.join("joins", "a", topic)
    named: dict[str, Any] = {"name": topic}
    if version >= 10:
        named = {"topic_id": s.metadata(topic).topic_id}
    for what, member, epoch in (
        ("its epoch", "a", 1),
        ("a later epoch", "a", 2),
        ("nobody", "x", 1),
        ("no member", None, -1),
    ):
        wanted = {"group_id": group.id, "member_id": member, "member_epoch": epoch}
        s.ask(what, Api.OFFSET_FETCH, version, require_stable=False,
              groups=[wanted | {"topics": [named | {"partition_indexes": [0]}]}])  # fmt: skip


def _subscription(topics: list[str], owned: dict[str, frozenset[int]] | None = None) -> bytes:
    out = INT16.pack(1) + count(len(topics), False)
    out += b"".join(string(topic, False) for topic in topics) + INT32.pack(-1)
    return out + write_assignment(owned or {}, 0)[2:-4]


@case(_BEAT)
def migration(s: Session, version: int) -> None:
    topic, group = s.topic(4), Group(s, version)
    classic = Member(s, group.id)

    def protocols(*owned: int) -> list[dict[str, Any]]:
        has = {topic: frozenset(owned)}
        return [{"name": "range", "metadata": _subscription([topic], has)}]

    classic.join("classic", protocols=protocols())
    everything = write_assignment({topic: frozenset(range(4))}, 1)
    assignment = {"member_id": classic.id, "assignment": everything}
    classic.sync("synced", assignments=[assignment])
    group.join("a consumer joins", "new", topic)
    group.describe("both")
    classic.beat("has to rejoin")
    classic.join("rejoins", protocols=protocols(0, 1, 2, 3))
    classic.sync("gets less")
    kept = _partitions(s)
    classic.beat("has to rejoin again")
    classic.join("gives up", protocols=protocols(*kept))
    classic.sync("goes on")
    classic.beat("lives")
    group.beat("the consumer gets the rest", "new")
    group.describe("shared")
    classic.beat("a wrong generation", generation_id=9)
    classic.join("other protocols", protocols=[{"name": "x", "metadata": b""}],
                 protocol_type="connect")  # fmt: skip
    group.beat("the consumer leaves", "new", -1)
    s.ask("a classic group", Api.DESCRIBE_GROUPS, 5, groups=[group.id],
          include_authorized_operations=False)  # fmt: skip
    classic.beat("has to rejoin in the classic group")
    classic.join("rejoins the classic group", protocols=protocols(*kept))


def _partitions(s: Session) -> list[int]:
    """The partitions of the assignment that a classic member was given last."""
    from moldau.broker.coordination.groups.consumer.embedded import read_assignment

    answer = s.steps[-1].answer
    data = answer["assignment"] if isinstance(answer, dict) else b""
    if isinstance(data, str):
        data = bytes.fromhex(data)
    return sorted(next(iter(read_assignment(data).values()), ()))
