"""The follower's side of a fetch session (KIP-227): what to name in the next question. No I/O.

    add, move      the partition is named in the next question, and stays part of the session
    leave_out      it is not to be answered for; told to the leader if that knows of it
    begin          a new session: everything is named

A partition that is not named is answered for from where it was named last. A second question may
be under way before the answer to the first has come; what that brings is then given twice, and
known by its offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from moldau.broker.api.records.fetch_sessions import FIRST_EPOCH, next_epoch
from moldau.peer.fetching import Wanted

Place = tuple[UUID, int]


class Asking:
    """The partitions of one session, and what the leader has yet to be told of them."""

    def __init__(self, wanted: Callable[[Place], Wanted]) -> None:
        self._wanted = wanted
        # In the order in which they were added; those that the leader knows, and those to name.
        self._places: dict[Place, None] = {}
        self._known: set[Place] = set()
        self._named: dict[Place, None] = {}
        self._forgotten: dict[Place, None] = {}
        self.session_id = 0
        self.epoch = FIRST_EPOCH

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, place: Place) -> bool:
        return place in self._places

    @property
    def has_news(self) -> bool:
        return bool(self._named or self._forgotten)

    def add(self, place: Place) -> None:
        """Has the partition answered for, from where it is now."""
        self._places[place] = None
        self._named[place] = None
        self._forgotten.pop(place, None)

    def move(self, place: Place) -> None:
        """The partition wants something else than before."""
        if place in self._places:
            self._named[place] = None

    def leave_out(self, place: Place) -> None:
        """Has it not answered for."""
        self._places.pop(place, None)
        self._named.pop(place, None)
        if place in self._known:
            self._forgotten[place] = None

    def begin(self) -> None:
        """There is no session any more: the next question begins one."""
        self.session_id, self.epoch = 0, FIRST_EPOCH
        self._known.clear()
        self._forgotten.clear()
        self._named = dict.fromkeys(self._places)

    def question(self) -> tuple[list[Wanted], list[tuple[UUID, list[int]]]]:
        """What to name in the next question, and what to forget."""
        named = _grouped(self._named)
        wanted = [self._wanted((topic, index)) for topic, indexes in named for index in indexes]
        forgotten = _grouped(self._forgotten)
        self._known.difference_update(self._forgotten)
        self._known.update(self._named)
        self._named.clear()
        self._forgotten.clear()
        return wanted, forgotten

    def asked(self) -> None:
        """A question is under way."""
        if self.session_id:
            self.epoch = next_epoch(self.epoch)

    def begun(self, session_id: int) -> None:
        """The leader has answered the first question; 0 where it keeps no session."""
        if self.epoch == FIRST_EPOCH:
            self.session_id = session_id
            self.epoch = next_epoch(FIRST_EPOCH) if session_id else FIRST_EPOCH


def _grouped(places: Iterable[Place]) -> list[tuple[UUID, list[int]]]:
    """The partitions of a topic stand together in a question."""
    topics: dict[UUID, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return list(topics.items())
