"""Sweeps while a partition of the transaction state has no leader: real broker, no Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moldau.peer.connection import Connection
from moldau.peer.transactions import STATE_TOPIC
from moldau.peer.view import ClusterView, Leader
from moldau.spark.sink import commits, committing
from moldau.spark.sink.committing import Committer
from moldau.spark.sink.sink import abort_staged
from moldau.spark.sink.staged import BatchName, commit_by
from moldau.spark.sink.staging_settings import StagingSettings
from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.spark.sink.staging import staged, values


def hide_state(monkeypatch: pytest.MonkeyPatch, views: int) -> None:
    """Take the leaders from the state topic, and what they know of, for so many looks at it."""
    left = [views]
    view_of, ask = ClusterView.of, Connection.ask

    def without_leaders(response: Any) -> ClusterView:
        view = view_of(response)
        if STATE_TOPIC not in view.topics or not left[0]:
            return view
        left[0] -= 1
        topic = view.topics[STATE_TOPIC]
        nobody = {index: Leader(-1, each.epoch) for index, each in topic.leaders.items()}
        return replace(view, topics=view.topics | {STATE_TOPIC: replace(topic, leaders=nobody)})

    def knowing_nothing(self: Connection, api: Api, *given: Any, **named: Any) -> Any:
        answer = ask(self, api, *given, **named)
        if api == Api.LIST_TRANSACTIONS and left[0]:
            return replace(answer, transaction_states=())
        return answer

    monkeypatch.setattr(ClusterView, "of", without_leaders)
    monkeypatch.setattr(Connection, "ask", knowing_nothing)


@pytest.mark.parametrize("is_single", [True, False])
@pytest.mark.parametrize("gives_up", [True, False])
def test_a_sweep_waits_until_all_coordinators_can_be_asked(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, monkeypatch: pytest.MonkeyPatch, *, is_single: bool, gives_up: bool,
) -> None:  # fmt: skip
    batch = BatchName(query, query, 0, is_single=is_single)
    task = staged(settings, batch, topic, "a")
    staged(settings, batch, topic, "an attempt that lost")
    hide_state(monkeypatch, 3)
    if gives_up:
        abort_staged(settings, batch)
    else:
        commit_by(committer, [task])
    monkeypatch.undo()
    assert committer.ongoing(query) == []
    assert values(moldau_session_broker, topic) == ([] if gives_up else ["a"])


def test_a_sweep_that_gives_up_says_so_and_the_next_one_finds_what_it_left(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    batch = BatchName(query, "run", 0)
    task = staged(settings, batch, topic, "a")
    stray = staged(settings, batch, topic, "an attempt that lost")
    monkeypatch.setattr(committing, "SWEEP_WITHIN_S", 0.1)
    hide_state(monkeypatch, 1_000_000)
    # The batch is committed, whatever else is open.
    commit_by(committer, [task])
    assert f"open transactions of query {query!r} were not looked for" in caplog.text
    assert "moldau transactions recover" in caplog.text
    monkeypatch.undo()
    assert committer.ongoing(query) == [stray.transaction.id]
    commit_by(committer, [staged(settings, batch._replace(number=1), topic, "b")])
    assert committer.ongoing(query) == []
    assert values(moldau_session_broker, topic) == ["a", "b"]


def test_what_many_runs_that_died_have_left_is_found_by_the_one_that_commits(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(commits, "KEPT_CLAIMS", 2)
    for number in range(5):
        staged(settings, BatchName(query, f"died-{number}", 0), topic, "a")
    task = staged(settings, BatchName(query, "run", 0), topic, "b")
    assert len(committer.ongoing(query)) == 6
    commit_by(committer, [task])
    assert committer.ongoing(query) == []
    assert values(moldau_session_broker, topic) == ["b"]
    # Of the claims only the last ones are kept.
    assert len(committer.read(query).claims) == 2
