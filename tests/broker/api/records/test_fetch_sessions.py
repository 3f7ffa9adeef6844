"""Incremental fetch sessions: the cache on values, and the protocol over the wire (KIP-227)."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.api.records import fetch_sessions
from moldau.broker.api.records.fetch_sessions import FetchSessions
from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.fetch.request import FetchPartition, FetchRequest
from moldau.wire.fetch.response import FetchedPartition
from moldau.wire.fetch.session import SessionError
from moldau.wire.primitives import TopicKey
from tests.broker.wire_client import Client, inside, make_batch, read_records, until_parked

# On values


def request(
    session_id: int = 0,
    epoch: int = 0,
    topics: dict[TopicKey, list[int]] | None = None,
    forgotten: dict[TopicKey, list[int]] | None = None,
    offset: int = 0,
) -> FetchRequest:
    wanted = [
        (key, [FetchPartition(index, -1, offset, -1, -1, 100) for index in indexes])
        for key, indexes in (topics or {}).items()
    ]
    return FetchRequest(
        wanted, -1, 0, 1, 100, 0, session_id, epoch, list((forgotten or {}).items()), ""
    )


def names(sessions: FetchSessions, session_id: int, epoch: int) -> list[tuple[TopicKey, int]]:
    session = sessions.open(request(session_id, epoch), False)
    assert session is not None
    return [(key, each.partition) for key, partitions in session.wanted() for each in partitions]


def refusal(sessions: FetchSessions, asked: FetchRequest, by_id: bool = False) -> Error:
    with pytest.raises(SessionError) as caught:
        sessions.open(asked, by_id)
    return caught.value.code


def test_a_session_begins_with_epoch_0_and_goes_on_from_1() -> None:
    sessions = FetchSessions(10)
    session = sessions.open(request(topics={"a": [0, 1]}), False)
    assert session is not None
    assert session.id > 0
    assert names(sessions, session.id, 1) == [("a", 0), ("a", 1)]
    assert names(sessions, session.id, 2) == [("a", 0), ("a", 1)]


def test_changes_are_taken_in() -> None:
    sessions = FetchSessions(10)
    session = sessions.open(request(topics={"a": [0, 1]}), False)
    assert session is not None
    change = request(session.id, 1, {"b": [5], "a": [1]}, {"a": [0], "never": [3]}, offset=70)
    assert sessions.open(change, False) is session
    assert [
        (key, each.partition, each.fetch_offset)
        for key, partitions in session.wanted()
        for each in partitions
    ] == [("a", 1, 70), ("b", 5, 70)]


@pytest.mark.parametrize("epoch", [2, 3, 2**31 - 1, -2])
def test_a_wrong_epoch_is_refused_and_does_no_harm(epoch: int) -> None:
    sessions = FetchSessions(10)
    session = sessions.open(request(topics={"a": [0]}), False)
    assert session is not None
    assert refusal(sessions, request(session.id, epoch)) == Error.INVALID_FETCH_SESSION_EPOCH
    assert names(sessions, session.id, 1) == [("a", 0)]


def test_the_epoch_after_the_largest_is_1() -> None:
    sessions = FetchSessions(10)
    session = sessions.open(request(topics={"a": [0]}), False)
    assert session is not None
    session.epoch = 2**31 - 1
    assert names(sessions, session.id, 1) == [("a", 0)]


def test_an_unknown_session_is_refused() -> None:
    sessions = FetchSessions(10)
    assert refusal(sessions, request(7, 1)) == Error.FETCH_SESSION_ID_NOT_FOUND
    assert refusal(sessions, request(0, 1)) == Error.FETCH_SESSION_ID_NOT_FOUND


def test_names_and_ids_do_not_mix_in_a_session() -> None:
    sessions = FetchSessions(10)
    session = sessions.open(request(topics={"a": [0]}), False)
    assert session is not None
    code = refusal(sessions, request(session.id, 1, {uuid4(): [0]}), by_id=True)
    assert code == Error.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_is_closed_by_epoch_minus_1_and_replaced_by_epoch_0() -> None:
    sessions = FetchSessions(10)
    first = sessions.open(request(topics={"a": [0]}), False)
    assert first is not None
    second = sessions.open(request(first.id, 0, {"b": [0]}), False)
    assert second is not None
    assert len(sessions) == 1
    assert refusal(sessions, request(first.id, 1)) == Error.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.open(request(second.id, -1), False) is None
    assert len(sessions) == 0


def test_nobody_gets_a_session_without_slots_or_unasked() -> None:
    sessions = FetchSessions(10)
    assert sessions.open(request(epoch=-1, topics={"a": [0]}), False) is None
    assert FetchSessions(0).open(request(topics={"a": [0]}), False) is None
    assert len(sessions) == 0


def test_the_session_that_was_unused_for_longest_makes_room() -> None:
    sessions = FetchSessions(2)
    opened = [sessions.open(request(topics={"a": [0]}), False) for _ in range(2)]
    first, second = (session.id for session in opened if session)
    names(sessions, first, 1)
    third = sessions.open(request(topics={"a": [0]}), False)
    assert third is not None
    assert len(sessions) == 2
    assert refusal(sessions, request(second, 1)) == Error.FETCH_SESSION_ID_NOT_FOUND
    assert names(sessions, first, 2) == [("a", 0)]


def test_all_sessions_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "_MOST_PARTITIONS", 10)
    sessions = FetchSessions(100)
    first = sessions.open(request(topics={"a": list(range(6))}), False)
    assert first is not None
    second = sessions.open(request(topics={"a": list(range(4))}), False)
    assert second is not None
    assert len(sessions) == 2
    # One more evicts the oldest; what is larger than everything gets no session.
    assert sessions.open(request(second.id, 1, {"b": [0]}), False) is second
    assert len(sessions) == 1
    assert sessions.open(request(topics={"a": list(range(11))}), False) is None
    third = sessions.open(request(topics={"a": [0]}), False)
    assert third is not None
    code = refusal(sessions, request(third.id, 1, {"b": list(range(20))}))
    assert code == Error.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0
    assert sessions._partitions == 0


def answer(index: int = 0, error: int = 0, end: int = 0, records: Any = None) -> FetchedPartition:
    return FetchedPartition(index, error, end, end, 0, records)


def test_only_news_are_told() -> None:
    sessions = FetchSessions(10)
    session = sessions.open(request(topics={"a": [0]}), False)
    assert session is not None
    assert session.changes([("a", [answer()])])
    assert not session.changes([("a", [answer()])])
    assert session.changes([("a", [answer(end=1)])])
    assert not session.changes([("a", [answer(end=1)])])
    assert session.changes([("a", [answer(end=1, records=b"x")])])
    assert session.changes([("a", [answer(error=3)])])
    # After an error even the offsets of before are news.
    assert session.changes([("a", [answer(end=1)])])


def test_who_was_served_goes_to_the_end_of_the_line() -> None:
    sessions = FetchSessions(10)
    session = sessions.open(request(topics={"a": [0, 1], "b": [0]}), False)
    assert session is not None
    session.changes([("a", [answer(0, records=b"x"), answer(1)]), ("b", [answer()])])
    line = [(key, each.partition) for key, found in session.wanted() for each in found]
    assert line == [("a", 1), ("b", 0), ("a", 0)]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.integers(-1, 4),
            st.dictionaries(st.sampled_from("ab"), st.lists(st.integers(0, 3)), max_size=2),
            st.dictionaries(st.sampled_from("ab"), st.lists(st.integers(0, 3)), max_size=2),
        ),
        max_size=40,
    )
)
def test_whatever_is_asked_the_books_are_right(asked: list[Any]) -> None:
    sessions = FetchSessions(3)
    ids = [0]
    for number, epoch, topics, forgotten in asked:
        try:
            session = sessions.open(
                request(ids[number % len(ids)], epoch, topics, forgotten), False
            )
        except SessionError:
            continue
        if session is not None and session.id not in ids:
            ids.append(session.id)
        assert len(sessions) <= 3
        assert sessions._partitions == sum(map(len, sessions._sessions.values()))


# Over the wire


def told(received: Any) -> dict[tuple[Any, int], int]:
    """Per partition of an answer, how many records came."""
    assert received.error_code == 0
    return {
        (getattr(topic, "topic", None) or topic.topic_id, each.partition_index): len(
            read_records(each.records)
        )
        for topic in received.responses
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
def test_a_session_over_the_wire(client: Client, version: int) -> None:
    topic, other = client.create(partitions=2), client.create()
    key: str | UUID = client.topic_id(topic) if version >= 13 else topic
    second: str | UUID = client.topic_id(other) if version >= 13 else other
    client.produce(topic, make_batch(b"x"))

    def fetch(session: int, epoch: int, wanted: dict[Any, Any], **more: Any) -> Any:
        client.send_fetch(wanted, version=version, session_id=session, session_epoch=epoch, **more)
        return client.receive()

    begun = fetch(0, 0, {key: [0, 1]})
    session = begun.session_id
    assert session > 0
    assert told(begun) == {(key, 0): 1, (key, 1): 0}

    # The client goes on behind what it has, and hears of nothing else.
    unchanged = fetch(session, 1, {key: [{"partition": 0, "fetch_offset": 1}]})
    assert (told(unchanged), unchanged.session_id) == ({}, session)

    client.produce(topic, make_batch(b"y", b"z"), partition=1)
    assert told(fetch(session, 2, {})) == {(key, 1): 2}

    # Added, then forgotten.
    client.produce(other, make_batch(b"w"))
    added = fetch(session, 3, {second: [0], key: [{"partition": 1, "fetch_offset": 2}]})
    assert told(added) == {(second, 0): 1}
    assert told(fetch(session, 4, {}, forgotten={second: [0]})) == {}

    assert fetch(session, 4, {}).error_code == Error.INVALID_FETCH_SESSION_EPOCH
    assert fetch(session + 1, 1, {}).error_code == Error.FETCH_SESSION_ID_NOT_FOUND

    closed = fetch(session, -1, {key: [0]})
    assert (closed.session_id, told(closed)) == (0, {(key, 0): 1})
    assert fetch(session, 5, {}).error_code == Error.FETCH_SESSION_ID_NOT_FOUND


def test_a_refused_request_does_not_wait(client: Client) -> None:
    client.send_fetch({}, session_id=12345, session_epoch=1, max_wait=60_000)
    received = client.receive()
    assert received.error_code == Error.FETCH_SESSION_ID_NOT_FOUND
    assert (received.session_id, received.responses) == (0, ())


def test_a_session_of_names_is_refused_to_who_asks_with_ids(client: Client) -> None:
    topic = client.create()
    client.send_fetch({topic: [0]}, session_epoch=0)
    session = client.receive().session_id
    client.send_fetch({}, session_id=session, session_epoch=1, version=13)
    assert client.receive().error_code == Error.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_parked_fetch_of_a_session_is_woken_with_the_news_only(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t", partitions=3)
    with Client(moldau_broker) as client, Client(moldau_broker) as producer:
        client.send_fetch({"t": [0, 1, 2]}, session_epoch=0)
        session = client.receive().session_id
        client.send_fetch({}, session_id=session, session_epoch=1, max_wait=60_000)
        partition = inside(moldau_broker, lambda server: server.partitions["t", 1])
        until_parked(partition)
        producer.produce("t", make_batch(b"x"), partition=1)
        assert told(client.receive()) == {("t", 1): 1}


def test_a_deleted_topic_is_an_error_in_the_session_until_forgotten(client: Client) -> None:

    topic, other = client.create(), client.create()
    client.send_fetch({topic: [0], other: [0]}, session_epoch=0)
    session = client.receive().session_id
    client.ask(Api.DELETE_TOPICS, topics=[{"name": topic, "topic_id": None}], timeout=5000)
    for epoch in (1, 2):
        client.send_fetch({}, session_id=session, session_epoch=epoch, max_wait=60_000)
        (gone,) = client.receive().responses
        assert gone.partitions[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    client.send_fetch({}, session_id=session, session_epoch=3, forgotten={topic: [0]})
    assert client.receive().responses == ()


def test_no_partition_starves_behind_one_that_always_has_records(client: Client) -> None:
    topic = client.create(partitions=3)
    for partition in range(3):
        client.produce(topic, make_batch(bytes(1000)), partition=partition)
    client.send_fetch({topic: [0, 1, 2]}, session_epoch=0, max_bytes=1)
    received = client.receive()
    served = [max(told(received), key=lambda place: told(received)[place])[1]]
    for epoch in (1, 2):
        client.send_fetch({}, session_id=received.session_id, session_epoch=epoch, max_bytes=1)
        news = told(client.receive())
        served.append(max(news, key=lambda place: news[place])[1])
    assert sorted(served) == [0, 1, 2]


@pytest.mark.moldau({"max.incremental.fetch.session.cache.slots": 3})
def test_sessions_beyond_the_slots_push_out_the_oldest(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t")
    with Client(moldau_broker) as client:
        ids = []
        for _ in range(5):
            client.send_fetch({"t": [0]}, session_epoch=0)
            ids.append(client.receive().session_id)
        assert len(set(ids)) == 5
        codes = []
        for session in ids:
            client.send_fetch({}, session_id=session, session_epoch=1)
            codes.append(client.receive().error_code)
        assert codes == [Error.FETCH_SESSION_ID_NOT_FOUND] * 2 + [0] * 3


@pytest.mark.moldau({"max.incremental.fetch.session.cache.slots": 0})
def test_without_slots_every_fetch_is_a_full_one(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t")
    with Client(moldau_broker) as client:
        for _ in range(2):
            client.send_fetch({"t": [0]}, session_epoch=0)
            received = client.receive()
            assert (received.session_id, told(received)) == (0, {("t", 0): 0})
