"""DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

from typing import Any

from conformance.cases.coordination.membership import Member, ready, stable
from conformance.registry import case
from conformance.session import Session
from moldau.wire.apis import Api


def commit(s: Session, group: str, topic: str, offset: int = 5) -> None:
    """A commit from outside any membership."""
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
    s.quietly(
        Api.OFFSET_COMMIT,
        7,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": topic, "partitions": [partition | {"committed_leader_epoch": -1}]}],
    )


@case(Api.DESCRIBE_GROUPS)
def descriptions(s: Session, version: int) -> None:
    ready(s)
    group, committed = s.name("g"), s.name("committed")

    def describe(what: str, *groups: str, operations: bool = False) -> None:
        s.ask(
            what,
            Api.DESCRIBE_GROUPS,
            version,
            groups=list(groups),
            include_authorized_operations=operations,
        )

    describe("unknown", s.name("unknown"))
    describe("empty name", "")
    describe("none")
    commit(s, committed, s.topic())
    describe("only commits", committed)
    member = Member(s, group)
    member.join("joined")
    member.sync("synced", assignments=[{"member_id": member.id, "assignment": b"all"}])
    describe("stable", group)
    describe("with operations", group, operations=True)
    describe("two and an unknown one", s.name("unknown"), committed, group)
    describe("twice", group, group)
    member.leave("left")
    describe("empty", group)


@case(Api.LIST_GROUPS)
def lists(s: Session, version: int) -> None:
    ready(s)
    group, committed = s.name("g"), s.name("committed")
    commit(s, committed, s.topic())
    stable(s, group)

    def listed(what: str, **more: Any) -> None:
        answer = s.quietly(Api.LIST_GROUPS, version, **more)
        mine = [each for each in answer.groups if each.group_id.startswith(s.scope)]
        shown = sorted((s.symbols.plain(each) for each in mine), key=lambda each: each["group_id"])
        s.note(what, {"error_code": answer.error_code, "groups": shown}, Api.LIST_GROUPS)

    listed("all")
    if version >= 4:
        for states in (["Stable"], ["Empty"], ["stable", "EMPTY"], ["Dead"], ["Nonsense"], [""]):
            listed(f"in {states}", states_filter=states)
    if version >= 5:
        for types in (["classic"], ["Classic"], ["consumer"], ["nonsense"], ["share", "classic"]):
            listed(f"of {types}", types_filter=types)
        listed("both", states_filter=["Stable"], types_filter=["classic"])


@case(Api.DELETE_GROUPS)
def deletion(s: Session, version: int) -> None:
    ready(s)
    group, committed = s.name("g"), s.name("committed")
    commit(s, committed, s.topic())
    member = stable(s, group)

    def delete(what: str, *groups: str) -> None:
        s.ask(what, Api.DELETE_GROUPS, version, groups_names=list(groups))

    delete("unknown", s.name("unknown"))
    delete("empty name", "")
    delete("none")
    delete("with a member", group)
    delete("two", committed, group)
    delete("again", committed)
    member.leave("left")
    delete("without members", group)
    delete("twice", group, group)
