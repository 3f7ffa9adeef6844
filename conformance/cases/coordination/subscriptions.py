"""Subscriptions of consumer groups: members that read different topics, and regular expressions."""

from __future__ import annotations

import time

from conformance.cases.coordination.consumer_groups import Group
from conformance.cases.coordination.membership import ready
from conformance.registry import case
from conformance.session import Session
from moldau.wire.apis import Api

_BEAT = Api.CONSUMER_GROUP_HEARTBEAT
_WITHIN_S = 30.0
_PAUSE_S = 0.05


@case(_BEAT, newest=True)
def different_topics(s: Session, version: int) -> None:
    """Topics have different numbers of partitions per reader, always: of two that have not, the one
    with the smaller id comes first, and the ids are random."""
    for assignor in ("uniform", "range"):
        small, middle, large = s.topic(2), s.topic(5), s.topic(12)
        group = Group(s, version, assignor)
        for member, topics in {
            "a": (small,),
            "b": (small, middle),
            "c": (small, middle, large),
            "d": (large,),
            "e": (middle, large),
        }.items():
            group.join(f"{member} joins", member, *topics, server_assignor=assignor)
            group.settle(1)
        group.settle()
        group.describe("all there")
        group.beat("c leaves", "c", -1)
        del group.epochs["c"]
        group.settle()
        group.describe("one gone")
        group.beat("a wants all", "a", subscribed_topic_names=[small, middle, large])
        group.settle()
        group.describe("one that reads all")
        group.beat("b wants another", "b", subscribed_topic_names=[large])
        group.settle()
        group.describe("one that reads another")
        group.beat("d wants nothing", "d", subscribed_topic_names=[])
        group.settle()
        group.describe("one that reads nothing")


@case(_BEAT, first=1)
def regular_expressions(s: Session, version: int) -> None:
    topics = [s.name(kind) for kind in ("red", "red", "green")]
    for number, topic in enumerate(topics):
        s.create(topic, 2 + number)
    group = Group(s, version)
    group.join("reds", "a", subscribed_topic_regex=f"{s.scope}-red.*")
    _await(group, {"a": 5})
    group.describe("reds only")
    group.join("names and an expression", "b", topics[0], subscribed_topic_regex=f".*{topics[2]}")
    _await(group, {"a": 4, "b": 5})
    group.describe("two members")
    group.beat("another expression", "a", subscribed_topic_regex=f"{s.scope}-(red|green)\\d+")
    _await(group, {"a": 5, "b": 4})
    group.describe("all colours")
    group.beat("no expression", "a", subscribed_topic_regex="")
    _await(group, {"a": 0, "b": 6})
    group.describe("one without")


@case(_BEAT, first=1)
def expressions_that_are_none(s: Session, version: int) -> None:
    ready(s)
    for number, regex in enumerate(
        ("(", "[", "a{2,1}", "*a", "(?=a)", "(?<n>a)(", r"\1", "a" * 20_000, "(a+)+b", "(?i)A", "")
    ):
        s.ask(
            f"expression {number}",
            _BEAT,
            version,
            group_id=s.name("g"),
            member_id="m",
            member_epoch=0,
            rebalance_timeout=30_000,
            subscribed_topic_names=[],
            subscribed_topic_regex=regex,
            topic_partitions=[],
        )


def _await(group: Group, wanted: dict[str, int]) -> None:
    """Have members follow until each has so many partitions: brokers look topics up in the
    background."""
    deadline = time.monotonic() + _WITHIN_S
    steps = len(group.s.steps)
    while True:
        for member in wanted:
            group.follow("follows", member)
        found = {member: sum(map(len, group.has.get(member, {}).values())) for member in wanted}
        # How many heartbeats it takes is a matter of time.
        del group.s.steps[steps:]
        if found == wanted or time.monotonic() > deadline:
            break
        time.sleep(_PAUSE_S)
    group.s.note(f"what they have when {len(wanted)} follow", found)
