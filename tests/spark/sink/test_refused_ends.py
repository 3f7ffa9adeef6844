"""Ends that a coordinator refuses: what is lost and what only waits are told apart."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from moldau.peer.cluster import Cluster
from moldau.peer.coordinators import Coordinators, PreparedTransaction
from moldau.peer.errors import Refused
from moldau.peer.view import Node
from moldau.spark.sink.committing import Committer, EndRefused, TransactionLost
from moldau.spark.sink.letter_commits import LetterCommits
from moldau.spark.sink.letter_ranges import Letters
from moldau.spark.sink.recovery import recover
from moldau.spark.sink.stage import Stage
from moldau.spark.sink.staged import BatchName, commit_by
from moldau.spark.sink.staging_settings import StagingSettings
from moldau.testing import Broker
from moldau.wire.errors import Error
from tests.spark.sink.staging import decide, put, stage, staged, values


def refuse(monkeypatch: pytest.MonkeyPatch, id: str, code: Error) -> None:
    """Let the coordinator refuse every end of a transaction."""
    end = Coordinators._end_once

    def refusing(
        self: Coordinators, left: Collection[PreparedTransaction], commits: bool
    ) -> list[tuple[PreparedTransaction, int]]:
        others = [each for each in left if each.id != id]
        refused = [(each, int(code)) for each in left if each.id == id]
        return end(self, others, commits) + refused

    monkeypatch.setattr(Coordinators, "_end_once", refusing)


@pytest.mark.parametrize(
    "code", [Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Error.UNKNOWN_SERVER_ERROR]
)
def test_a_decided_transaction_whose_end_is_refused_is_not_lost(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, monkeypatch: pytest.MonkeyPatch, code: Error,
) -> None:  # fmt: skip
    batch = BatchName(query, "run", 0)
    tasks = [staged(settings, batch, topic, "a"), staged(settings, batch, topic, "b")]
    refuse(monkeypatch, tasks[1].transaction.id, code)
    with pytest.raises(EndRefused, match=f"{code.name}.*nothing is lost"):
        commit_by(committer, tasks)
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        # Nor is it given up by mistake.
        (done,) = recover(cluster, older_than_ms=0, query=query, gives_up=True)
        assert (done.lost, done.given_up, done.aborted) == (None, (), [])
        assert code.name in (done.refused or "")
    # Others who use the sink are not stopped by what they may not end.
    commit_by(committer, [staged(settings, BatchName(f"{query}-b", "run", 0), topic, "c")])
    monkeypatch.undo()
    assert stage(settings, BatchName(query, "next", 0), topic, "a", "b") is None
    assert values(moldau_session_broker, topic) == ["a", "b", "c"]


def test_the_refused_end_of_a_single_write_stops_nobody_else(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    single = BatchName(query, query, 0, is_single=True)
    task = staged(settings, single, topic, "a")
    refuse(monkeypatch, task.transaction.id, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(EndRefused):
        commit_by(committer, [task])
    other = staged(settings, BatchName(f"{query}-other", "run", 0), topic, "b")
    commit_by(committer, [other])
    monkeypatch.undo()
    stage(settings, BatchName(f"{query}-third", "run", 0), topic, "c")
    assert committer.read(query).unended is None


def test_a_single_write_whose_coordinator_may_not_be_asked_for_stops_nobody_else(
    settings: StagingSettings, committer: Committer, topic: str, query: str,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    single = BatchName(query, query, 0, is_single=True)
    task = staged(settings, single, topic, "a")
    decide(committer, single, task)
    find = Coordinators._find

    def refusing(self: Coordinators, ids: Collection[str]) -> dict[str, Node]:
        if task.transaction.id in ids:
            code = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            raise Refused(code, f"coordinator of {task.transaction.id!r}")
        return find(self, ids)

    monkeypatch.setattr(Coordinators, "_find", refusing)
    commit_by(committer, [staged(settings, BatchName(f"{query}-other", "run", 0), topic, "b")])
    assert f"could not finish the decided write {query!r}" in caplog.text
    monkeypatch.undo()
    stage(settings, BatchName(f"{query}-third", "run", 0), topic, "c")
    assert committer.read(query).unended is None


def test_what_is_lost_beside_a_refused_end_waits_for_it(
    settings: StagingSettings, committer: Committer, topic: str, query: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    batch = BatchName(query, "run", 0)
    tasks = [staged(settings, batch, topic, "a"), staged(settings, batch, topic, "b")]
    committer.coordinators.abort([tasks[0].transaction.id])
    refuse(monkeypatch, tasks[1].transaction.id, Error.UNKNOWN_SERVER_ERROR)
    with pytest.raises(EndRefused):
        commit_by(committer, tasks)
    monkeypatch.undo()
    with pytest.raises(TransactionLost, match=f"1 of its 2 .*{tasks[0].transaction.id}"):
        stage(settings, BatchName(query, "next", 0), topic, "a")


def test_dead_letters_whose_end_is_refused_are_not_taken_for_lost(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    process = Stage(settings)
    task = put(process, BatchName(query, "letters", 0), topic, "a")
    process.close()
    letters = Letters(query, "t/1", 0, ((0, 5),), 0, task.transaction, 0)
    commits = LetterCommits(committer.log, committer.coordinators)
    refuse(monkeypatch, task.transaction.id, Error.UNKNOWN_SERVER_ERROR)
    with pytest.raises(Refused, match="UNKNOWN_SERVER_ERROR"):
        commits.commit(letters)
    monkeypatch.undo()
    assert commits.missing(letters) == ()
    assert values(moldau_session_broker, topic) == ["a"]
