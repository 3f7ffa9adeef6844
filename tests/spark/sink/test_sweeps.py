"""Sweeps while a partition of the transaction state has no leader: real broker, no Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moldau.peer.cluster import Cluster
from moldau.peer.connection import Connection
from moldau.peer.transactions import STATE_TOPIC
from moldau.peer.view import ClusterView, Leader
from moldau.spark.sink import commits, committing
from moldau.spark.sink.committing import Committer
from moldau.spark.sink.sink import abort_staged
from moldau.spark.sink.stage import Stage
from moldau.spark.sink.staged import BatchName, commit_by
from moldau.spark.sink.staging_settings import StagingSettings
from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.spark.sink.staging import put, staged, values


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
    assert f"could not find or abort the open transactions of query {query!r}" in caplog.text
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


def test_what_a_sweep_has_sent_and_the_broker_gets_late_leaves_the_next_batch_alone(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The next batch has its transactions under the same ids."""
    sent: list[tuple[Api, Any]] = []
    send = Connection.send

    def recording(self: Connection, api: Api, values: Any, *given: Any) -> Any:
        if api in (Api.INIT_PRODUCER_ID, Api.END_TXN):
            sent.append((api, values))
        return send(self, api, values, *given)

    process = Stage(settings)
    batch = BatchName(query, "run", 0)
    task = put(process, batch, topic, "a")
    stray = put(process, batch, topic, "an attempt that lost")
    monkeypatch.setattr(Connection, "send", recording)
    commit_by(committer, [task])
    monkeypatch.undo()
    assert stray.transaction.id in {asked["transactional_id"] for _, asked in sent}
    tasks = [put(process, batch._replace(number=1), topic, value) for value in "bc"]
    process.close()
    assert stray.transaction.id in {each.transaction.id for each in tasks}
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        for api, asked in sent:
            cluster.some_broker().ask(api, asked)
    commit_by(committer, tasks)
    assert values(moldau_session_broker, topic) == ["a", "b", "c"]


def test_what_was_swept_is_not_swept_again(
    settings: StagingSettings, committer: Committer, topic: str, query: str
) -> None:
    """Or else its transactional id would never expire."""
    batch = BatchName(query, "run", 0)
    task = staged(settings, batch, topic, "a")
    stray = staged(settings, batch, topic, "an attempt that lost")
    # It has an identity, and has written nothing.
    begun = Stage(settings)
    begun.open(batch)
    begun.close()
    assert len(committer.ongoing(query, with_begun=True)) == 3
    commit_by(committer, [task])
    assert committer.ongoing(query, with_begun=True) == []
    # A sweep leaves nothing behind that it would find itself.
    committer.coordinators.abort([stray.transaction.id])
    assert committer.ongoing(query, with_begun=True) == []
