"""Elections of the controller, with a session that answers as told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moldau.cluster.store import NotController
from moldau.cluster.zookeeper.election import NOBODY, Election
from moldau.cluster.zookeeper.sessions.operations import Stat
from moldau.cluster.zookeeper.znodes import Holder, Paths, encode_holder

BROKER, EPOCH, SESSION = 2, 27, 0x1028


class Session:
    """The session of a controller; `ends_at` is the path over whose answer it ends."""

    def __init__(self, paths: Paths, ends_at: str = "") -> None:
        self.id = SESSION
        self._paths = paths
        self._ends_at = ends_at
        self.on_end: Any = None

    async def exists(self, path: str, watch: object = None) -> Stat | None:
        assert path == self._paths.controller
        return Stat(0, 1, 1, SESSION, 0) if self.id == SESSION else None

    async def get(self, path: str, watch: object = None) -> tuple[bytes, Stat]:
        if path == self._ends_at:
            self.id = 0
            self.on_end()
        if path == self._paths.controller:
            return encode_holder(Holder(BROKER, EPOCH)), Stat(0, 1, 1, SESSION, 0)
        return b"%d" % EPOCH, Stat(5, 1, 1, 0, 0)


def elected(ends_at: str = "") -> tuple[Election, int]:
    paths = Paths("")
    session: Any = Session(paths, getattr(paths, ends_at) if ends_at else "")
    election = Election(session, paths, BROKER, lambda: None)
    session.on_end = election.lose
    return election, asyncio.run(election.look(may_be_elected=False))


def test_the_session_that_was_elected_is_the_controller() -> None:
    election, controller = elected()
    assert controller == BROKER
    assert election.is_held
    assert election.epoch == EPOCH


@pytest.mark.parametrize("ends_at", ["controller", "controller_epoch"])
def test_a_session_that_ends_while_it_finds_out_is_not_the_controller(ends_at: str) -> None:
    election, controller = elected(ends_at)
    assert controller == NOBODY
    assert not election.is_held
    with pytest.raises(NotController):
        _ = election.guards
