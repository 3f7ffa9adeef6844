"""Claims that arrive late, when their run may be dead: real broker, no Spark."""

from __future__ import annotations

import pytest

from moldau.peer.errors import ConnectionLost
from moldau.peer.ledger import Ledger
from moldau.spark.sink.commits import Claim
from moldau.spark.sink.committing import Committer, Fenced
from moldau.spark.sink.staged import BatchName, commit_by
from moldau.spark.sink.staging_settings import StagingSettings
from moldau.testing import Broker
from tests.spark.sink.staging import staged, values


@pytest.mark.parametrize("is_repeated", [True, False])
def test_a_claim_that_arrives_after_that_of_a_later_run_does_not_count(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, monkeypatch: pytest.MonkeyPatch, *, is_repeated: bool,
) -> None:  # fmt: skip
    """The broker gets what a connection that was cut had sent, whether it was sent again or not."""
    held: list[bytes] = []
    append = Ledger._append_once

    def hold(self: Ledger, batch: bytes) -> int:
        held.append(batch)
        if is_repeated:
            monkeypatch.undo()
            raise ConnectionLost("broker", "cut")
        raise RuntimeError("killed")

    monkeypatch.setattr(Ledger, "_append_once", hold)
    dead, living = BatchName(query, "dead", 0), BatchName(query, "living", 0)
    if is_repeated:
        staged(settings, dead, topic, "a")
    else:
        with pytest.raises(RuntimeError, match="killed"):
            staged(settings, dead, topic, "a")
        monkeypatch.undo()
    task = staged(settings, living, topic, "a")
    committer.read(query)
    append(committer.log._ledger, held[0])
    commit_by(committer, [task])
    commit_by(committer, [staged(settings, living._replace(number=1), topic, "b")])
    assert values(moldau_session_broker, topic) == ["a", "b"]
    if is_repeated:
        # It is no later run, and stays fenced.
        with pytest.raises(Fenced, match="run living has taken over"):
            staged(settings, dead._replace(number=2), topic, "c")
    # What does not count goes with the next end.
    assert [claim.run for _, claim in committer.read(query).claims].count("dead") == is_repeated
    assert committer.read(query).garbage == []


def test_a_run_before_whose_claim_another_arrives_claims_again(
    moldau_session_broker: Broker, settings: StagingSettings, committer: Committer, topic: str,
    query: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The other may be dead: nobody would take over from it."""
    append = Ledger._append_once

    def overtaken(self: Ledger, batch: bytes) -> int:
        monkeypatch.undo()
        committer.read(query)
        committer.log.append([Claim(query, "dead", 0, seen=committer.log.position)])
        return append(self, batch)

    monkeypatch.setattr(Ledger, "_append_once", overtaken)
    commit_by(committer, [staged(settings, BatchName(query, "living", 0), topic, "a")])
    assert values(moldau_session_broker, topic) == ["a"]
