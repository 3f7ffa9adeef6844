"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: single requests, and groups of two."""

from __future__ import annotations

from typing import Any

from conformance.connection import PATIENCE_S, Connection
from conformance.registry import case
from conformance.session import Session
from moldau.wire.apis import Api

_PROTOCOLS = [{"name": "range", "metadata": b"r"}, {"name": "roundrobin", "metadata": b"rr"}]
# For the rest of a group's conversation, when the case is about one of its requests.
_JOIN, _SYNC, _BEAT, _LEAVE = 5, 3, 3, 3


def ready(s: Session, group: str = "") -> None:
    """Until groups, or this one, have a coordinator that is loaded."""
    name = group or s.scope

    def there() -> bool:
        answer = s.quietly(Api.FIND_COORDINATOR, 1, key=group or "any", key_type=0)
        if int(answer.error_code) != 0:
            return False
        beat = s.quietly(Api.HEARTBEAT, 0, group_id=name, generation_id=1, member_id="m")
        return int(beat.error_code) not in (14, 15, 16)

    s.until(there, "coordinator")


class Member:
    """One member of a group, on a connection of its own."""

    def __init__(self, s: Session, group: str, instance: str | None = None) -> None:
        self.s, self.group, self.instance = s, group, instance
        self.via: Connection = s.connect()
        self.id = ""
        self.generation = -1

    def values(self, **more: Any) -> dict[str, Any]:
        found = {
            "group_id": self.group,
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocols": _PROTOCOLS,
        }
        return found | more

    def join(self, what: str, version: int = _JOIN, **more: Any) -> Any:
        """Join, with the id that the broker gives where it wants to be asked twice (KIP-394)."""
        return self.joining(what, version, **more)()

    def joining(
        self, what: str, version: int = _JOIN, patience_s: float = PATIENCE_S, **more: Any
    ) -> Any:
        """Send a join; what is returned waits for its answer."""
        receive = self.s.send(what, Api.JOIN_GROUP, version, self.via, **self.values(**more))

        def answer() -> Any:
            found = receive(patience_s)
            if found is not None and found.error_code.name == "member_id_required":
                self.id = found.member_id
                again = self.s.send(
                    f"{what}, with the id",
                    Api.JOIN_GROUP,
                    version,
                    self.via,
                    **self.values(**more),
                )
                found = again(patience_s)
            if found is not None and int(found.error_code) == 0:
                self.id, self.generation = found.member_id, found.generation_id
            return found

        return answer

    def syncing(self, what: str, version: int = _SYNC, assignments: Any = (), **more: Any) -> Any:
        values = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": list(assignments),
        }
        return self.s.send(what, Api.SYNC_GROUP, version, self.via, **values | more)

    def sync(self, what: str, version: int = _SYNC, assignments: Any = (), **more: Any) -> Any:
        return self.syncing(what, version, assignments, **more)()

    def beat(self, what: str, version: int = _BEAT, **more: Any) -> Any:
        values: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
        }
        return self.s.ask(what, Api.HEARTBEAT, version, via=self.via, **values | more)

    def leave(self, what: str, version: int = _LEAVE, **more: Any) -> Any:
        mine = {"member_id": self.id, "group_instance_id": self.instance}
        values: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.id,
            "members": [mine],
        }
        return self.s.ask(what, Api.LEAVE_GROUP, version, via=self.via, **values | more)


def stable(s: Session, group: str) -> Member:
    """A group of one that has its assignment."""
    member = Member(s, group)
    member.join("joined")
    member.sync("synced", assignments=[{"member_id": member.id, "assignment": b"all"}])
    return member


@case(Api.JOIN_GROUP)
def first_join(s: Session, version: int) -> None:
    ready(s)
    member = Member(s, s.name("g"))
    member.join("join", version)
    member.join("join again", version)
    member.sync("sync", assignments=[{"member_id": member.id, "assignment": b"all"}])
    member.join("join while stable", version)
    member.leave("leave")


@case(Api.JOIN_GROUP)
def wrong_joins(s: Session, version: int) -> None:
    ready(s)

    def join(what: str, **more: Any) -> None:
        Member(s, s.name("g")).join(what, version, **more)

    join("an empty group", group_id="")
    join("a timeout too short", session_timeout=1)
    join("a timeout too long", session_timeout=100_000_000)
    join("a negative timeout", session_timeout=-1)
    join("no protocols", protocols=[])
    join("no type", protocol_type="")
    join("neither", protocols=[], protocol_type="")
    join("an unknown member", member_id="nobody")
    join("empty metadata", protocols=[{"name": "range", "metadata": b""}])
    join("another type", protocol_type="connect")
    if version >= 5:
        join("an instance", group_instance_id="one")
        join("an instance with a wrong member", group_instance_id="two", member_id="nobody")
        join("an empty instance", group_instance_id="")
        join("an instance with a bad name", group_instance_id="a b")
    # Kafka fails inside and forgets to answer.
    join("the same protocol twice", protocols=[_PROTOCOLS[0], _PROTOCOLS[0]], patience_s=0.3)


@case(Api.JOIN_GROUP)
def joins_that_do_not_fit(s: Session, version: int) -> None:
    ready(s)
    group = s.name("g")
    first = stable(s, group)
    other = Member(s, group)
    other.join("another type", version, protocol_type="connect")
    other.join("no protocol in common", version, protocols=[{"name": "x", "metadata": b""}])
    first.beat("the first is undisturbed")
    other.join("a wrong member id", version, member_id="nobody")
    first.beat("still undisturbed")


@case(Api.JOIN_GROUP)
def two_members(s: Session, version: int) -> None:
    ready(s)
    group = s.name("g")
    first, second = Member(s, group), Member(s, group)
    first.join("first", version)
    first.sync("first synced", assignments=[{"member_id": first.id, "assignment": b"all"}])
    # A member that may join at once waits for the others; one that must ask twice is told so.
    if version >= 4:
        asked = s.send("second asks", Api.JOIN_GROUP, version, second.via, **second.values())()
        second.id = asked.member_id
    joining = second.joining("second", version)
    s.until(
        lambda: (
            _code(s, Api.HEARTBEAT, 0, group_id=group, generation_id=1, member_id=first.id) == 27
        ),
        "rebalance",
    )
    first.beat("the first is told")
    first.join("first again", version)
    joining()
    waiting = second.syncing("second synced")
    assignments = [
        {"member_id": first.id, "assignment": b"one"},
        {"member_id": second.id, "assignment": b"two"},
    ]
    first.sync("first synced again", assignments=assignments)
    waiting()
    first.beat("first is well")
    second.beat("second is well")
    first.beat("an old generation", generation_id=1)
    first.beat("a future generation", generation_id=9)
    second.sync("synced once more")
    second.join("the follower joins with nothing new", version)
    first.beat("and after that")
    second.leave("second leaves")
    first.beat("the first is told again")
    first.join("alone again", version)
    first.sync("alone", assignments=[{"member_id": first.id, "assignment": b"all"}])
    first.leave("gone")
    first.beat("nobody")


def _code(s: Session, api: Api, version: int, **values: Any) -> int:
    return int(s.quietly(api, version, **values).error_code)


@case(Api.JOIN_GROUP, first=5)
def static_members(s: Session, version: int) -> None:
    ready(s)
    group = s.name("g")
    member = Member(s, group, "first")
    member.join("joined", version)
    member.sync("synced", assignments=[{"member_id": member.id, "assignment": b"all"}])
    old = member.id
    again = Member(s, group, "first")
    again.join("came back", version)
    again.sync("and synced")
    again.beat("is well")
    member.id = old
    member.beat("the old one is fenced")
    member.beat("the old one without instance", group_instance_id=None)
    member.sync("the old one syncs")
    member.join("the old one joins", version)
    stranger = Member(s, group, "stranger")
    stranger.id = again.id
    stranger.beat("an instance nobody knows")
    again.leave("leaves")
    again.beat("gone")


@case(Api.SYNC_GROUP)
def wrong_syncs(s: Session, version: int) -> None:
    ready(s)
    group = s.name("g")
    member = Member(s, group)
    member.join("joined")

    def sync(what: str, **more: Any) -> None:
        member.sync(what, version, **more)

    sync("an unknown group", group_id=s.name("unknown"))
    sync("an empty group", group_id="")
    sync("an unknown member", member_id="nobody")
    sync("an empty member", member_id="")
    sync("an old generation", generation_id=0)
    sync("generation -1", generation_id=-1)
    sync("a future generation", generation_id=5)
    if version >= 5:
        sync("another type", protocol_type="connect")
        sync("another protocol", protocol_name="roundrobin")
    if version >= 3:
        sync("an unknown instance", group_instance_id="nobody")
    sync("right", assignments=[{"member_id": member.id, "assignment": b"all"}])
    sync(
        "again, with another assignment", assignments=[{"member_id": member.id, "assignment": b"x"}]
    )
    if version >= 5:
        sync("null type", protocol_type=None)
        sync("null protocol", protocol_name=None)


@case(Api.SYNC_GROUP)
def assignments(s: Session, version: int) -> None:
    ready(s)
    member = Member(s, s.name("g"))
    member.join("joined")
    member.sync("for somebody else", version, [{"member_id": "nobody", "assignment": b"x"}])
    member.join("joined again")
    member.sync("for nobody", version)
    member.join("and again")
    mine = {"member_id": member.id, "assignment": b"a"}
    member.sync("twice", version, [mine, {"member_id": member.id, "assignment": b"b"}])


@case(Api.HEARTBEAT)
def heartbeats(s: Session, version: int) -> None:
    ready(s)
    group = s.name("g")
    member = Member(s, group)
    member.join("joined")
    member.beat("before it synced", version)
    member.sync("synced", assignments=[{"member_id": member.id, "assignment": b"all"}])
    member.beat("right", version)
    member.beat("an unknown group", version, group_id=s.name("unknown"))
    member.beat("an empty group", version, group_id="")
    member.beat("an unknown member", version, member_id="nobody")
    member.beat("an empty member", version, member_id="")
    for generation in (0, -1, 2):
        member.beat(f"generation {generation}", version, generation_id=generation)
    if version >= 3:
        member.beat("an unknown instance", version, group_instance_id="nobody")
    member.leave("left")
    member.beat("after it left", version)


@case(Api.LEAVE_GROUP)
def leaving(s: Session, version: int) -> None:
    ready(s)
    member = stable(s, s.name("g"))

    def leave(
        what: str, member_id: str, group: str | None = None, instance: str | None = None
    ) -> None:
        mine = {"member_id": member_id, "group_instance_id": instance}
        name = member.group if group is None else group
        s.ask(
            what,
            Api.LEAVE_GROUP,
            version,
            group_id=name,
            member_id=member_id,
            members=[mine],
        )

    leave("an unknown group", member.id, s.name("unknown"))
    leave("an empty group", member.id, "")
    leave("an unknown member", "nobody")
    leave("an empty member", "")
    if version >= 3:
        leave("an unknown instance", "", instance="nobody")
        leave("an instance that is not its own", member.id, instance="nobody")
        s.ask("nobody", Api.LEAVE_GROUP, version, group_id=member.group, members=[])
        mine = {"member_id": member.id, "group_instance_id": None}
        other = {"member_id": "nobody", "group_instance_id": None}
        s.ask(
            "two, one of them unknown",
            Api.LEAVE_GROUP,
            version,
            group_id=member.group,
            members=[other, mine],
        )
    else:
        leave("itself", member.id)
    leave("again", member.id)


@case(Api.LEAVE_GROUP, first=3)
def static_members_leave(s: Session, version: int) -> None:
    ready(s)
    member = Member(s, s.name("g"), "first")
    member.join("joined")
    member.sync("synced", assignments=[{"member_id": member.id, "assignment": b"all"}])
    for what, member_id in (("a wrong member id", "nobody"), ("by instance only", "")):
        mine = {"member_id": member_id, "group_instance_id": "first"}
        s.ask(what, Api.LEAVE_GROUP, version, group_id=member.group, members=[mine])
    member.beat("gone")
