"""Requests for an identity that a broker gets late, when others wait for their end: no Spark."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.peer.cluster import Cluster
from moldau.peer.connection import Connection
from moldau.peer.errors import ConnectionLost
from moldau.spark.sink.committing import Committer
from moldau.spark.sink.stage import Stage
from moldau.spark.sink.staged import BatchName, commit_by
from moldau.spark.sink.staged_letters import Letter, Reading, StagedLetters
from moldau.spark.sink.staging_settings import StagingSettings
from moldau.spark.source.ranges import OffsetRange
from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.spark.sink.staging import put, values


class Wire:
    """The connections of this process; the first request for an identity is held by one that is
    cut."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._held: list[Any] = []
        ask = Connection.ask

        def holding(connection: Connection, api: Api, given: Any, *more: Any, **named: Any) -> Any:
            if api == Api.INIT_PRODUCER_ID and not self._held:
                self._held.append(given)
                connection.close()
                raise ConnectionLost(connection.address, "cut")
            return ask(connection, api, given, *more, **named)

        monkeypatch.setattr(Connection, "ask", holding)

    def deliver(self, settings: StagingSettings) -> None:
        (given,) = self._held
        with Cluster(settings.bootstrap, settings.peer) as cluster:
            cluster.some_broker().ask(Api.INIT_PRODUCER_ID, given)


def test_what_is_staged_is_not_aborted_by_a_request_that_arrives_late(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    wire = Wire(monkeypatch)
    process = Stage(settings)
    used: set[str] = set()
    for number in range(3):
        tasks = [put(process, BatchName(query, "run", number), topic, value) for value in "ab"]
        used.update(each.transaction.id for each in tasks)
        wire.deliver(settings)
        commit_by(committer, tasks)
    process.close()
    assert values(moldau_session_broker, topic) == [*"aaabbb"]
    # The id is given up for good, and the others are used again.
    assert len(used) == 2
    assert committer.ongoing(query, with_begun=True) == []


def test_dead_letters_are_not_aborted_by_a_request_that_arrives_late(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    wire = Wire(monkeypatch)
    process = Stage(settings)
    for offset in range(2):
        partition = OffsetRange("origin", None, 0, offset, offset + 1)
        letters = StagedLetters(process, Reading(query, 0, partition))
        letters.send(topic, [Letter(offset, None, b"%d" % offset, [])])
        wire.deliver(settings)
        letters.flush()
    process.close()
    assert values(moldau_session_broker, topic) == ["0", "1"]
    assert committer.ongoing(query) == []
