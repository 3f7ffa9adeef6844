"""Members come and go under load: a partition has one owner, a message is handled once."""

from __future__ import annotations

import pytest

from moldau.testing.waiting import until
from tests.clients.groups.members import (
    AioMember,
    ConfluentMember,
    ConsumerProtocolMember,
    Flow,
    KafkaPythonMember,
    Ledger,
    Member,
    commit_the_beginning,
    topic_of,
)


@pytest.mark.parametrize(
    "kind", [ConfluentMember, ConsumerProtocolMember, KafkaPythonMember, AioMember]
)
def test_members_join_and_leave_under_load_and_each_message_is_handled_once(
    kind: type[Member],
) -> None:
    ledger = Ledger()
    with topic_of(6) as broker:
        commit_the_beginning(broker, 6)
        flow = Flow(broker, 6).start()
        one = kind(broker, ledger, "one").start()
        until(lambda: ledger.is_shared_by(6, "one"), "one has all")
        two = kind(broker, ledger, "two").start()
        until(lambda: ledger.is_shared_by(6, "one", "two"), "two of them share")
        three = kind(broker, ledger, "three").start()
        until(lambda: ledger.is_shared_by(6, "one", "two", "three"), "three share")
        # Partitions may change hands one by one.
        until(lambda: all(len(ledger.owned_by(each)) == 2 for each in ("one", "two", "three")))
        one.stop()
        until(lambda: ledger.is_shared_by(6, "two", "three"), "the other two share")
        two.stop()
        until(lambda: ledger.is_shared_by(6, "three"), "the last one has all")
        flow.stop()
        until(lambda: len(ledger.handled) == len(flow.written), "all is handled")
        three.stop()
    ledger.check()
    assert ledger.handled == flow.written


def test_a_hundred_thousand_messages_over_three_members_arrive_once_each() -> None:
    ledger = Ledger()
    count = 100_000
    with topic_of(6) as broker:
        commit_the_beginning(broker, 6)
        flow = Flow(broker, 6)
        flow.write(count)
        members = [ConfluentMember(broker, ledger, name).start() for name in ("one", "two")]
        until(lambda: len(ledger.handled) > count // 10, "some are handled")
        members.append(ConfluentMember(broker, ledger, "three").start())
        until(lambda: len(ledger.handled) > count // 3, "a third is handled")
        members.pop(0).stop()
        members.append(ConfluentMember(broker, ledger, "four").start())
        until(lambda: len(ledger.handled) == count, "all are handled")
        until(lambda: ledger.is_shared_by(6, "two", "three", "four"), "three share")
        for member in members:
            member.stop()
    ledger.check()
    assert set(ledger.handled.values()) == {1}


def test_members_by_different_libraries_share_one_group() -> None:
    ledger = Ledger()
    with topic_of(6) as broker:
        commit_the_beginning(broker, 6)
        flow = Flow(broker, 6).start()
        kinds = {"rdkafka": ConfluentMember, "python": KafkaPythonMember, "aio": AioMember}
        members = [kind(broker, ledger, name).start() for name, kind in kinds.items()]
        until(lambda: ledger.is_shared_by(6, *kinds), "the three share")
        until(lambda: all(len(ledger.owned_by(name)) == 2 for name in kinds))
        flow.stop()
        until(lambda: len(ledger.handled) == len(flow.written), "all is handled")
        for member in members:
            member.stop()
    ledger.check()
    assert ledger.handled == flow.written


def test_cooperative_members_keep_reading_what_they_keep() -> None:
    ledger = Ledger()
    with topic_of(6) as broker:
        commit_the_beginning(broker, 6)
        flow = Flow(broker, 6).start()

        def member(name: str) -> ConfluentMember:
            joining = ConfluentMember(broker, ledger, name, assignor="cooperative-sticky")
            joining.start()
            return joining

        one = member("one")
        until(lambda: ledger.is_shared_by(6, "one"), "one has all")
        two = member("two")
        until(lambda: ledger.is_shared_by(6, "one", "two"), "two share")
        # An eager member would have given up all six.
        assert ledger.revoked["one"] == 3
        three = member("three")
        until(lambda: ledger.is_shared_by(6, "one", "two", "three"), "three share")
        assert (ledger.revoked["one"], ledger.revoked["two"]) == (4, 1)
        one.stop()
        until(lambda: ledger.is_shared_by(6, "two", "three"), "the others share")
        assert (ledger.revoked["two"], ledger.revoked["three"]) == (1, 0)
        flow.stop()
        until(lambda: len(ledger.handled) == len(flow.written), "all is handled")
        two.stop()
        three.stop()
    ledger.check()
    assert ledger.handled == flow.written


@pytest.mark.slow
def test_a_group_migrates_to_the_consumer_protocol_and_back_under_load() -> None:
    ledger = Ledger()
    with topic_of(6) as broker:
        commit_the_beginning(broker, 6)
        flow = Flow(broker, 6).start()

        def classic(name: str) -> ConfluentMember:
            return ConfluentMember(broker, ledger, name, assignor="cooperative-sticky").start()

        one, two = classic("one"), classic("two")
        until(lambda: ledger.is_shared_by(6, "one", "two"), "two share")
        three = ConsumerProtocolMember(broker, ledger, "three").start()
        until(lambda: ledger.is_shared_by(6, "one", "two", "three"), "both kinds share")
        one.stop()
        until(lambda: ledger.is_shared_by(6, "two", "three"), "one of each is left")
        two.stop()
        until(lambda: ledger.is_shared_by(6, "three"), "only the new kind is left")
        four = classic("four")
        until(lambda: ledger.is_shared_by(6, "three", "four"), "both kinds share again")
        three.stop()
        until(lambda: ledger.is_shared_by(6, "four"), "the group is a classic one again")
        flow.stop()
        until(lambda: len(ledger.handled) == len(flow.written), "all is handled")
        four.stop()
    ledger.check()
    assert ledger.handled == flow.written
