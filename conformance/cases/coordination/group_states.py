"""Groups of two in every state: votes, rebalances under way, members that fall silent."""

from __future__ import annotations

from typing import Any

from conformance.cases.coordination.membership import Member, ready, stable
from conformance.registry import case
from conformance.session import Session
from moldau.wire.apis import Api

# For the rest of a group's conversation, when the case is about one of its requests.
_JOIN = 9
_NO_EPOCH = {"committed_leader_epoch": -1}


@case(Api.JOIN_GROUP, newest=True)
def votes_for_a_protocol(s: Session, version: int) -> None:
    """Each member votes for the first of its protocols that all know."""
    ready(s)
    group = s.name("g")
    first, second = Member(s, group), Member(s, group)
    first.join("first", version, protocols=_named("a", "b", "c"))
    first.sync("first synced")
    joining = _begin(s, second, version, protocols=_named("x", "c", "b"))
    first.join("first again", version, protocols=_named("a", "b", "c"))
    joining()
    first.leave("the leader leaves")
    second.join("the other one leads", version, protocols=_named("x", "c"))
    second.sync("synced")
    _describe(s, "described", group)


def _named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "metadata": name.encode()} for name in names]


def _begin(s: Session, member: Member, version: int, **more: Any) -> Any:
    """Let a further member join, up to where the group waits for the others to join again."""
    asked = s.send("asks", Api.JOIN_GROUP, version, member.via, **member.values(**more))()
    member.id = asked.member_id
    joining = member.joining("joins", version, **more)
    s.until(lambda: _state(s, member.group) == "PreparingRebalance", "rebalance")
    return joining


def _state(s: Session, group: str) -> str:
    return str(s.quietly(Api.DESCRIBE_GROUPS, 4, groups=[group]).groups[0].group_state)


def _describe(s: Session, what: str, group: str) -> None:
    s.ask(what, Api.DESCRIBE_GROUPS, 5, groups=[group], include_authorized_operations=False)


@case(Api.JOIN_GROUP, newest=True)
def while_it_rebalances(s: Session, version: int) -> None:
    """What each request is told in each state of a group."""
    ready(s)
    group, topic = s.name("g"), s.topic()
    first, second = stable(s, group), Member(s, group)
    joining = _begin(s, second, version)
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    wanted = [{"name": topic, "partitions": [partition | {"committed_leader_epoch": -1}]}]

    def commit(what: str, member: Member) -> None:
        where: dict[str, Any] = {"group_id": group, "member_id": member.id, "topics": wanted}
        where["generation_id_or_member_epoch"] = member.generation
        s.ask(what, Api.OFFSET_COMMIT, 7, **where)

    _describe(s, "preparing", group)
    first.beat("a heartbeat while it prepares")
    first.sync("a sync while it prepares")
    commit("a commit while it prepares", first)
    s.ask("deleted while it prepares", Api.DELETE_GROUPS, 2, groups_names=[group])
    first.join("first again", version)
    joining()
    _describe(s, "completing", group)
    first.beat("a heartbeat while it completes")
    second.beat("a heartbeat of the other one")
    commit("a commit while it completes", first)
    s.ask("deleted while it completes", Api.DELETE_GROUPS, 2, groups_names=[group])
    waiting = second.syncing("the follower's share")
    first.sync("shared", assignments=[{"member_id": second.id, "assignment": b"all"}])
    waiting()
    commit("a commit when it is stable", second)
    _describe(s, "stable", group)


@case(Api.JOIN_GROUP, newest=True)
def silent_members(s: Session, version: int) -> None:
    """One that is not heard of for its session timeout is out; so is one that does not join."""
    ready(s)
    group = s.name("g")
    short = {"session_timeout": 1000}
    lost = Member(s, group)
    lost.join("joined", version, **short)
    lost.sync("synced")
    s.until(lambda: _state(s, group) == "Empty", "end of a session")
    lost.beat("after its session")
    _describe(s, "without it", group)

    first, second = Member(s, group), Member(s, group)
    first.join("joined anew", version, rebalance_timeout=500)
    first.sync("synced anew")
    joining = _begin(s, second, version)
    joining()
    first.beat("one that did not join again")
    second.sync("the others go on")
    _describe(s, "without the late one", group)


@case(Api.JOIN_GROUP, newest=True)
def static_members_in_a_rebalance(s: Session, version: int) -> None:
    ready(s)
    group = s.name("g")
    first, second = Member(s, group, "one"), Member(s, group, "two")
    first.join("first", version)
    first.sync("first synced", assignments=[{"member_id": first.id, "assignment": b"all"}])
    joining = second.joining("second", version)
    s.until(lambda: _state(s, group) == "PreparingRebalance", "rebalance")
    again = Member(s, group, "one")
    again.join("the first is back with another id", version)
    joining()
    first.beat("its old id")
    waiting = second.syncing("second synced")
    again.sync("shared", assignments=[{"member_id": second.id, "assignment": b"all"}])
    waiting()
    other = Member(s, group, "one")
    other.join("back with other protocols", version, protocols=_named("range"))
    _describe(s, "described", group)


@case(Api.OFFSET_COMMIT, newest=True)
def commits_that_come_late(s: Session, version: int) -> None:
    """A follower that joins again is in the same generation: what it has sent over a connection
    that is gone counts when it comes, though it goes back. In the next generation it does not."""
    ready(s)
    group, topic = s.name("g"), s.topic()
    leader, follower = stable(s, group), Member(s, group)
    joining = _begin(s, follower, _JOIN)
    leader.join("the leader again", _JOIN)
    joining()
    waiting = follower.syncing("the follower's share")
    leader.sync("shared", assignments=[{"member_id": follower.id, "assignment": b"all"}])
    waiting()

    def values(offset: int) -> dict[str, Any]:
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        wanted = [{"topic_id": s.topic_id(topic), "partitions": [part | _NO_EPOCH]}]
        where = {"group_id": group, "member_id": follower.id, "group_instance_id": None}
        return {**where, "generation_id_or_member_epoch": generation, "topics": wanted}

    def commit(what: str, offset: int) -> None:
        s.ask(what, Api.OFFSET_COMMIT, version, via=follower.via, **values(offset))

    def commit_and_go(offset: int) -> None:
        old = s.connect()
        old.send(Api.OFFSET_COMMIT, version, values(offset))
        old.close()

    def committed() -> int:
        wanted = [{"name": topic, "partition_indexes": [0]}]
        groups = [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": wanted}]
        found = s.quietly(Api.OFFSET_FETCH, 8, groups=groups, require_stable=True).groups[0]
        return int(found.topics[0].partitions[0].committed_offset)

    generation = follower.generation
    commit("before", 5)
    follower.join("the follower joins with nothing new", _JOIN)
    s.note("whether its generation goes on", follower.generation == generation)
    commit("after", 9)
    commit_and_go(7)
    s.until(lambda: committed() == 7, "late commit")
    commit("the next", 11)
    joining = leader.joining("the leader joins", _JOIN)
    s.until(lambda: _state(s, group) == "PreparingRebalance", "rebalance")
    follower.join("the follower too", _JOIN)
    joining()
    leader.sync("shared again", assignments=[{"member_id": follower.id, "assignment": b"all"}])
    follower.sync("the follower's share again")
    commit("late by a generation", 8)
    s.note("what is committed", committed())
