"""Metadata."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from conformance.registry import case
from conformance.session import Session
from moldau.wire.apis import Api

_STRANGER = UUID(int=0x1234_5678_9ABC_4DEF_8000_0000_0000_0001)


@case(Api.METADATA)
def topics_by_name(s: Session, version: int) -> None:
    one, three = s.topic(), s.topic(3)
    for what, names in (
        ("one", [one]),
        ("three partitions", [three]),
        ("two", [one, three]),
        ("two, other order", [three, one]),
        ("the same twice", [one, one]),
        ("unknown", [s.name("unknown")]),
        ("known and unknown", [s.name("unknown"), one]),
        ("empty name", [""]),
        ("bad characters", ["a b/c"]),
        ("a dot", ["."]),
        ("two dots", [".."]),
        ("too long", ["x" * 250]),
        ("longest", ["y" * 249]),
    ):
        s.ask(
            what,
            Api.METADATA,
            version,
            topics=[{"name": name} for name in names],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )


@case(Api.METADATA, first=4)
def creation_on_demand(s: Session, version: int) -> None:
    fresh = s.name("auto")
    asked: dict[str, Any] = {"topics": [{"name": fresh}]}
    s.ask("not allowed", Api.METADATA, version, allow_auto_topic_creation=False, **asked)
    s.ask("allowed", Api.METADATA, version, allow_auto_topic_creation=True, **asked)
    s.wait_for_topic(fresh, 1)
    s.symbols.know("topic id", s.topic_id(fresh), "id of the new topic")
    s.ask("created", Api.METADATA, version, allow_auto_topic_creation=False, **asked)
    s.ask(
        "a bad name",
        Api.METADATA,
        version,
        topics=[{"name": "bad name"}],
        allow_auto_topic_creation=True,
    )
    s.ask(
        "an internal topic",
        Api.METADATA,
        version,
        topics=[{"name": "__transaction_state_x"}],
        allow_auto_topic_creation=False,
    )


@case(Api.METADATA, last=3)
def creation_by_old_clients(s: Session, version: int) -> None:
    fresh = s.name("auto")
    s.ask("first", Api.METADATA, version, topics=[{"name": fresh}])
    s.wait_for_topic(fresh, 1)
    s.ask("created", Api.METADATA, version, topics=[{"name": fresh}])


@case(Api.METADATA)
def none_and_all(s: Session, version: int) -> None:
    mine = s.topic(2)
    if version >= 1:
        s.ask("no topics", Api.METADATA, version, topics=[])
        everything = s.quietly(Api.METADATA, version, topics=None)
    else:
        everything = s.quietly(Api.METADATA, version, topics=[])
    names = [each.name for each in everything.topics]
    s.note("mine is there", names.count(mine), Api.METADATA)
    s.note("brokers", everything.brokers, Api.METADATA)


@case(Api.METADATA, first=10)
def topics_by_id(s: Session, version: int) -> None:
    one = s.topic()
    known = s.topic_id(one)
    s.ask("known", Api.METADATA, version, topics=[{"topic_id": known, "name": None}])
    s.ask("unknown", Api.METADATA, version, topics=[{"topic_id": _STRANGER, "name": None}])
    s.ask(
        "both",
        Api.METADATA,
        version,
        topics=[{"topic_id": known, "name": None}, {"topic_id": _STRANGER, "name": None}],
    )
    s.ask("zero and no name", Api.METADATA, version, topics=[{"topic_id": None, "name": None}])
    s.ask("id and name", Api.METADATA, version, topics=[{"topic_id": known, "name": one}])
    s.ask(
        "id and another name", Api.METADATA, version, topics=[{"topic_id": known, "name": "other"}]
    )
    s.ask(
        "one by id, one by name",
        Api.METADATA,
        version,
        topics=[{"topic_id": known, "name": None}, {"topic_id": None, "name": one}],
    )
