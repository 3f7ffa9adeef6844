"""A follower's session against what a leader makes of its requests."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.replication.follower.fetch_session import FetcherSession
from moldau.wire.fetch.request import FetchPartition
from moldau.wire.primitives import TopicIdPartition, TopicKey

TOPICS = [UUID(int=1), UUID(int=2)]
PARTITIONS = [(topic, index) for topic in TOPICS for index in range(3)]


class Follower:
    def __init__(self) -> None:
        self.offsets = dict.fromkeys(PARTITIONS, 0)
        self.session = FetcherSession(self.wanted)

    def wanted(self, key: TopicIdPartition) -> FetchPartition:
        return FetchPartition(key[1], fetch_offset=self.offsets[key])


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "update", "remove", "send", "send", "lose the session"]),
        st.sampled_from(PARTITIONS),
    ),
    max_size=40,
)


@given(steps)
def test_after_each_request_the_leader_knows_what_the_follower_wants(
    steps: list[tuple[str, TopicIdPartition]],
) -> None:
    follower = Follower()
    session = follower.session
    intended: set[TopicIdPartition] = set()
    known: dict[tuple[TopicKey, int], int] = {}
    session_id, epoch = 0, 0
    for step, key in [*steps, ("send", PARTITIONS[0])]:
        if step == "add":
            session.add(key)
            intended.add(key)
        elif step == "update":
            follower.offsets[key] += 1
            session.update(key)
            if key not in intended:
                follower.offsets[key] -= 1
        elif step == "remove":
            session.remove(key)
            intended.discard(key)
        elif step == "lose the session":
            session.reset()
            known, session_id, epoch = {}, 0, 0
        else:
            assert (session.id, session.epoch) == (session_id, epoch)
            wanted, forgotten = session.next_request()
            session.sent()
            for topic, indexes in forgotten:
                for index in indexes:
                    # Nobody is told to forget what it does not know.
                    del known[topic, index]
            for topic, partitions in wanted:
                for each in partitions:
                    known[topic, each.partition] = each.fetch_offset
            assert known == {each: follower.offsets[each] for each in intended}
            assert not session.has_changes
            if not session_id:
                session_id = 7
                session.established(session_id)
            epoch += 1
    assert len(session) == len(intended)


def test_partitions_of_a_topic_stand_together() -> None:
    session = Follower().session
    for key in (PARTITIONS[0], PARTITIONS[3], PARTITIONS[1]):
        session.add(key)
    wanted, _ = session.next_request()
    assert [(topic, [each.partition for each in found]) for topic, found in wanted] == [
        (TOPICS[0], [0, 1]),
        (TOPICS[1], [0]),
    ]
