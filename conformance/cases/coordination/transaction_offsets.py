"""Offsets in transactions: of members of groups of every kind, and beside what others ask."""

from __future__ import annotations

from typing import Any

from conformance.cases.coordination.consumer_groups import Group
from conformance.cases.coordination.groups import commit
from conformance.cases.coordination.membership import Member, ready, stable
from conformance.cases.coordination.share_groups import Group as ShareGroup
from conformance.cases.coordination.transactions import Transaction
from conformance.registry import case
from conformance.session import Session
from moldau.wire.apis import Api


class Staging:
    """An open transaction of the newer dialect, in which offsets of a group are committed."""

    def __init__(self, s: Session, group: str, topic: str) -> None:
        ready(s, group)
        self.s, self.group, self.topic = s, group, topic
        self.txn = Transaction(s).init()
        self._is_told: set[str] = set()

    def stage(self, what: str, version: int = 5, *partitions: Any, **more: Any) -> Any:
        given = list(partitions) or [self.partition()]
        values = {"group_id": self.group, "generation_id": -1, "member_id": "", **self.txn.who}
        values |= {"group_instance_id": None} | more
        if version < 5:
            self._tell(str(values["group_id"]))
        topics = [{"name": self.topic, "partitions": given}]
        return self.s.ask(what, Api.TXN_OFFSET_COMMIT, version, **values, topics=topics)

    def partition(self, offset: int = 5, index: int = 0, metadata: str | None = "m") -> Any:
        return {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": metadata,
        }

    def _tell(self, group: str) -> None:
        """The older dialect says which group there will be offsets of."""
        if group in self._is_told:
            return
        self._is_told.add(group)
        values = self.txn.who | {"group_id": group}
        self.s.until(
            lambda: int(self.s.quietly(Api.ADD_OFFSETS_TO_TXN, 3, **values).error_code) == 0,
            "group in the transaction",
        )

    def end(self, *, commits: bool) -> None:
        values = self.txn.who | {"committed": commits}
        self.s.until(lambda: int(self.s.quietly(Api.END_TXN, 3, **values).error_code) == 0, "end")
        self.txn.until("CompleteCommit" if commits else "CompleteAbort")

    def fetch(self, what: str) -> None:
        """What is committed, for those who take it as it is and for those who do not."""
        asked = [{"name": self.topic, "partition_indexes": [0]}]
        for stable_only in (False, True):
            values: dict[str, Any] = {"group_id": self.group, "require_stable": stable_only}
            kind = "only if stable" if stable_only else "as it is"
            self.s.ask(f"{what}, {kind}", Api.OFFSET_FETCH, 7, **values, topics=asked)
        values = {"group_id": self.group, "require_stable": True, "topics": None}
        self.s.ask(f"{what}, of all topics", Api.OFFSET_FETCH, 7, **values)


@case(Api.TXN_OFFSET_COMMIT, first=3)
def offsets_of_members_in_transactions(s: Session, version: int) -> None:
    """KIP-447: the group's own fences count besides those of the producer."""
    group = s.name("g")
    staging = Staging(s, group, s.topic())
    member = Member(s, group)
    member.join("joined")

    def stage(what: str, **more: Any) -> None:
        mine = {"generation_id": member.generation, "member_id": member.id}
        staging.stage(what, version, **mine | more)

    stage("before it synced")
    member.sync("synced", assignments=[{"member_id": member.id, "assignment": b"all"}])
    stage("right")
    stage("an old generation", generation_id=0)
    stage("a future generation", generation_id=7)
    stage("no generation", generation_id=-1)
    stage("another member", member_id="nobody")
    stage("no member", member_id="")
    stage("neither", member_id="", generation_id=-1)
    stage("an unknown instance", group_instance_id="nobody")
    staging.fetch("while it is open")
    member.leave("left")
    stage("after it left")
    stage("neither, after it left", member_id="", generation_id=-1)
    staging.end(commits=True)
    staging.fetch("after its commit")


@case(Api.TXN_OFFSET_COMMIT, first=3)
def offsets_of_static_members_in_transactions(s: Session, version: int) -> None:
    group = s.name("g")
    staging = Staging(s, group, s.topic())
    first = Member(s, group, "instance")
    first.join("joined")
    first.sync("synced", assignments=[{"member_id": first.id, "assignment": b"all"}])
    mine = {"generation_id": first.generation, "member_id": first.id}
    staging.stage("right", version, **mine, group_instance_id="instance")
    staging.stage("without its instance", version, **mine)
    second = Member(s, group, "instance")
    second.join("another in its place")
    staging.stage("who was replaced", version, **mine, group_instance_id="instance")
    theirs = {"generation_id": second.generation, "member_id": second.id}
    staging.stage("who replaced it", version, **theirs, group_instance_id="instance")


@case(Api.TXN_OFFSET_COMMIT, first=3)
def offsets_in_transactions_by_member_epoch(s: Session, version: int) -> None:
    """Members of the protocol of KIP-848."""
    topic = s.topic()
    group = Group(s)
    group.join("joins", "m", topic)
    staging = Staging(s, group.id, topic)
    epoch = group.epochs["m"]

    def stage(what: str, member: str, epoch: int) -> None:
        staging.stage(what, version, member_id=member, generation_id=epoch)

    stage("right", "m", epoch)
    stage("an old epoch", "m", epoch - 1)
    stage("a future epoch", "m", epoch + 1)
    stage("no epoch", "m", -1)
    stage("another member", "nobody", epoch)
    stage("neither", "", -1)
    stage("an epoch without a member", "", epoch)
    group.beat("leaves", "m", -1)
    stage("after it left", "m", epoch)
    stage("neither, after it left", "", -1)
    staging.end(commits=True)
    staging.fetch("after its commit")


@case(Api.TXN_OFFSET_COMMIT)
def offsets_in_transactions_that_are_wrong(s: Session, version: int) -> None:
    staging = Staging(s, s.name("g"), s.topic(2))
    partition = staging.partition
    staging.stage("much metadata", version, partition(metadata="x" * 5000))
    staging.stage("just enough", version, partition(metadata="x" * 4096))
    staging.stage("null metadata", version, partition(metadata=None))
    staging.stage("offset -1", version, partition(-1))
    staging.stage("offset -5", version, partition(-5))
    staging.stage("a negative partition", version, partition(index=-1))
    staging.stage("known and unknown", version, partition(index=9), partition(index=1))
    staging.stage("the same twice", version, partition(6), partition(7))
    if version == 5:
        staging.stage("an empty group", version, group_id="")
    staging.fetch("while it is open")
    staging.end(commits=True)
    staging.fetch("after its commit")
    share = ShareGroup(s)
    share.join("m")
    staging.txn.init()
    staging.stage("of a share group", version, group_id=share.id)


@case(Api.TXN_OFFSET_COMMIT, newest=True)
def staged_offsets_beside_others(s: Session, version: int) -> None:
    """What comes after a staged offset wins, whatever its transaction comes to."""
    topic = s.topic()

    def delete(group: str) -> None:
        named = [{"name": topic, "partitions": [{"partition_index": 0}]}]
        s.ask("deleted", Api.OFFSET_DELETE, 0, group_id=group, topics=named)

    def delete_group(group: str) -> None:
        s.ask("the group is deleted", Api.DELETE_GROUPS, 2, groups_names=[group])

    def commit_later(group: str) -> None:
        commit(s, group, topic, 9)

    def join(group: str) -> None:
        stable(s, group).leave("left")

    for commits in (True, False):
        for what, then in (
            ("nothing", None),
            ("a commit", commit_later),
            ("a deletion", delete),
            ("a deletion of the group", delete_group),
            ("a member", join),
        ):
            group = s.name("g")
            staging = Staging(s, group, topic)
            commit(s, group, topic, 3)
            staging.stage(f"{what}: staged", version)
            if then is not None:
                then(group)
            staging.fetch(f"{what}: while it is open")
            staging.end(commits=commits)
            staging.fetch(f"{what}: after its {'commit' if commits else 'abort'}")


@case(Api.TXN_OFFSET_COMMIT, newest=True)
def two_transactions_with_one_offset(s: Session, version: int) -> None:
    topic, group = s.topic(), s.name("g")
    first, second = Staging(s, group, topic), Staging(s, group, topic)
    first.stage("the first", version, first.partition(5))
    second.stage("the second", version, second.partition(7))
    second.end(commits=True)
    first.fetch("the second is committed")
    first.end(commits=True)
    first.fetch("both are")


@case(Api.TXN_OFFSET_COMMIT, newest=True)
def a_group_of_staged_offsets_alone(s: Session, version: int) -> None:
    staging = Staging(s, s.name("g"), s.topic())

    def look(what: str) -> None:
        s.ask(f"described {what}", Api.DESCRIBE_GROUPS, 5, groups=[staging.group])
        listed = s.quietly(Api.LIST_GROUPS, 4, states_filter=[])
        found = [each.group_state for each in listed.groups if each.group_id == staging.group]
        s.note(f"listed {what}", found)

    look("before")
    staging.stage("staged", version)
    look("while it is open")
    staging.end(commits=False)
    look("after its abort")
    staging.txn.init()
    staging.stage("staged again", version)
    staging.end(commits=True)
    look("after its commit")
