"""A follower's session against what a leader makes of its questions."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.replication.follower.fetch_session import Asking, Place
from moldau.peer.fetching import Wanted

TOPICS = [UUID(int=1), UUID(int=2)]
PLACES = [(topic, index) for topic in TOPICS for index in range(3)]


class Follower:
    def __init__(self) -> None:
        self.offsets = dict.fromkeys(PLACES, 0)
        self.asking = Asking(self.wanted)

    def wanted(self, place: Place) -> Wanted:
        return Wanted("t", place[0], place[1], self.offsets[place], 100)


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "move", "leave out", "ask", "ask", "lose the session"]),
        st.sampled_from(PLACES),
    ),
    max_size=40,
)


@given(steps)
def test_after_each_question_the_leader_knows_what_the_follower_wants(
    steps: list[tuple[str, Place]],
) -> None:
    follower = Follower()
    asking = follower.asking
    intended: set[Place] = set()
    known: dict[Place, int] = {}
    session, expected = 0, 0
    for step, place in [*steps, ("ask", PLACES[0])]:
        if step == "add":
            asking.add(place)
            intended.add(place)
        elif step == "move":
            follower.offsets[place] += 1
            asking.move(place)
            if place not in intended:
                follower.offsets[place] -= 1
        elif step == "leave out":
            asking.leave_out(place)
            intended.discard(place)
        elif step == "lose the session":
            asking.begin()
            known, session, expected = {}, 0, 0
        else:
            assert (asking.session_id, asking.epoch) == (session, expected)
            wanted, forgotten = asking.question()
            asking.asked()
            for topic, indexes in forgotten:
                for index in indexes:
                    # Nobody is told to forget what it does not know.
                    del known[topic, index]
            for each in wanted:
                assert each.topic_id is not None
                known[each.topic_id, each.partition] = each.offset
            assert known == {each: follower.offsets[each] for each in intended}
            assert not asking.has_news
            if not session:
                session = 7
                asking.begun(session)
            expected += 1
    assert len(asking) == len(intended)


def test_partitions_of_a_topic_stand_together() -> None:
    asking = Follower().asking
    for place in (PLACES[0], PLACES[3], PLACES[1]):
        asking.add(place)
    wanted, _ = asking.question()
    assert [(each.topic_id, each.partition) for each in wanted] == [
        PLACES[0],
        PLACES[1],
        PLACES[3],
    ]
