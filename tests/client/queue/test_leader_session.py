"""Share sessions as a member keeps them, without a broker."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from moldau.client.queue.leader_session import LeaderSession, Word

ONE, OTHER = UUID(int=1), UUID(int=2)


def named(request: dict[str, Any], field: str = "topics") -> list[tuple[UUID, list[Any]]]:
    return [(each["topic_id"], each["partitions"]) for each in request[field]]


def test_partitions_are_named_once_and_forgotten_by_name() -> None:
    session = LeaderSession("group", "member")
    first = session.fetch({(ONE, 0), (ONE, 1)}, 10, 100)
    assert first["share_session_epoch"] == 0
    assert named(first) == [(ONE, [{"partition_index": 0}, {"partition_index": 1}])]
    session.advance()
    again = session.fetch({(ONE, 0), (ONE, 1)}, 10, 100)
    assert (again["share_session_epoch"], again["topics"]) == (1, [])
    session.advance()
    moved = session.fetch({(ONE, 1), (OTHER, 3)}, 10, 100)
    assert named(moved) == [(OTHER, [{"partition_index": 3}])]
    assert named(moved, "forgotten_topics_data") == [(ONE, [0])]


def test_a_session_that_is_over_begins_anew_with_all_its_partitions() -> None:
    session = LeaderSession("group", "member")
    session.fetch({(ONE, 0)}, 10, 100)
    session.advance()
    session.reset()
    again = session.fetch({(ONE, 0)}, 10, 100)
    assert again["share_session_epoch"] == 0
    assert named(again) == [(ONE, [{"partition_index": 0}])]


def test_what_is_said_of_neighbours_is_said_together() -> None:
    session = LeaderSession("group", "member")
    session.advance()
    words = {3: Word.ACCEPT, 1: Word.ACCEPT, 2: Word.ACCEPT, 4: Word.REJECT, 6: Word.REJECT}
    request = session.acknowledge({(ONE, 0): words})
    [(_, [partition])] = named(request)
    ranges = [
        (each["first_offset"], each["last_offset"], each["acknowledge_types"])
        for each in partition["acknowledgement_batches"]
    ]
    assert ranges == [(1, 3, [Word.ACCEPT]), (4, 4, [Word.REJECT]), (6, 6, [Word.REJECT])]
    assert not request["is_renew_ack"]
    assert session.acknowledge({(ONE, 0): {1: Word.RENEW}})["is_renew_ack"]
    assert session.acknowledge({}, is_last=True)["share_session_epoch"] == -1
