"""Commits, as values: what their log means, which compaction does not change, whenever it runs."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.peer.coordinators import PreparedTransaction
from moldau.spark.sink.commits import (
    OVER_MS,
    Claim,
    Commits,
    Decision,
    Ended,
    Entry,
    Over,
    Query,
    encode,
)

RUNS = ("a", "b", "c")
entries = st.one_of(
    st.builds(
        Claim,
        st.just("q"),
        st.sampled_from(RUNS),
        st.just(0),
        seen=st.none() | st.integers(0, 40),
    ),
    st.builds(
        Claim,
        st.just("q"),
        st.just("failed"),
        st.just(0),
        st.just(False),
        after=st.sampled_from(RUNS),
    ),
    st.builds(
        Decision,
        st.just("q"),
        st.sampled_from(RUNS),
        st.integers(0, 4),
        st.just((PreparedTransaction("id", 1, 0),)),
        st.just(True),
        st.just(0),
    ),
    st.builds(Ended, st.just("q"), st.sampled_from(RUNS), st.integers(0, 4), st.just(0)),
    st.builds(Over, st.sampled_from(RUNS), st.just(0)),
)


def state(query: Query) -> object:
    """What decides about anything to come."""
    return query.run, query.claimed_at, query.last, query.is_ended


@pytest.mark.parametrize("kept", [1, 2, 20])
@given(given=st.lists(st.tuples(entries, st.booleans()), max_size=40), data=st.data())
def test_tombstones_and_compaction_change_nothing_that_counts(
    kept: int, given: list[tuple[Entry, bool]], data: st.DataObject
) -> None:
    with patch("moldau.spark.sink.commits.KEPT_CLAIMS", kept):
        check_compaction(given, data)


def check_compaction(given: list[tuple[Entry, bool]], data: st.DataObject) -> None:
    log: list[tuple[bytes, bytes | None]] = []
    reader = Commits()
    for number, (entry, tidies) in enumerate(given):
        record = (b"%d" % number, encode(entry))
        log.append(record)
        reader.apply(*record, len(log) - 1)
        found = reader.of("q")
        before = state(found)
        if tidies and found.is_ended:
            for key in [*found.removable(), *found.old_claims()]:
                log.append((key, None))
                reader.apply(key, None, len(log) - 1)
            assert state(reader.of("q")) == before
    # Compaction has come up to some place, and has dropped tombstones up to another before it.
    cleaned = data.draw(st.integers(0, len(log)))
    dropped = data.draw(st.integers(0, cleaned))
    last = {key: at for at, (key, _) in enumerate(log)}
    late = Commits()
    for at, (key, value) in enumerate(log):
        if at >= cleaned or (last[key] == at and (value is not None or at >= dropped)):
            late.apply(key, value, at)
    assert state(late.of("q")) == state(reader.of("q"))


def test_runs_that_failed_long_ago_are_forgotten() -> None:
    commits = Commits()
    # The answer to the first attempt was lost.
    for key in (b"1", b"2"):
        commits.apply(key, encode(Over("write", 5)))
    commits.apply(b"3", encode(Claim("write", "write", 5, is_single=True)))
    commits.apply(b"4", encode(Claim("query", "run", 5)))
    commits.apply(b"5", encode(Over("run", 5)))
    commits.apply(b"6", encode(Over("other", 6)))
    assert commits.outdated(5 + OVER_MS) == []
    outdated = commits.outdated(6 + OVER_MS)
    assert sorted(outdated) == [b"1", b"2", b"3", b"5"]
    for key in outdated:
        commits.apply(key, None)
    assert [each for each in ("write", "run", "other") if commits.is_over(each)] == ["other"]
    assert commits.queries.keys() == {"query"}


def test_the_decision_of_a_single_write_that_failed_is_kept_until_it_has_ended() -> None:
    commits = Commits()
    commits.apply(b"1", encode(Claim("write", "write", 0, is_single=True)))
    transactions = (PreparedTransaction("id", 1, 0),)
    commits.apply(b"2", encode(Decision("write", "write", 0, transactions, True, 0)))
    commits.apply(b"3", encode(Over("write", 0)))
    assert commits.outdated(1 + OVER_MS) == [b"3"]
    assert commits.of("write").unended is not None


@pytest.mark.parametrize("carried_out", [False, True])
def test_what_is_said_again_of_a_single_write_that_is_over_does_not_count_nor_stay(
    *, carried_out: bool
) -> None:
    commits = Commits()
    claim = encode(Claim("write", "write", 0, is_single=True))
    transactions = (PreparedTransaction("id", 1, 0),)
    decision = encode(Decision("write", "write", 0, transactions, True, 0))
    commits.apply(b"1", claim)
    commits.apply(b"2", decision)
    commits.apply(b"3", encode(Over("write", 0, carried_out=carried_out)))
    for key in commits.of("write").removable():
        commits.apply(key, None)
    assert (commits.carried_out("write") is not None) == carried_out
    assert commits.queries == {}
    commits.apply(b"4", decision)
    commits.apply(b"5", claim)
    commits.apply(b"6", decision)
    found = commits.of("write")
    assert (found.run, found.last, found.garbage) == (None, None, [b"4", b"5", b"6"])
    assert commits.outdated(1 + OVER_MS) == [b"3", b"4", b"5", b"6"]


def test_a_claim_counts_unless_another_run_has_claimed_what_it_had_not_seen() -> None:
    commits = Commits()

    def claim(at: int, run: str, seen: int | None) -> str | None:
        commits.apply(b"%d" % at, encode(Claim("q", run, 0, seen=seen)), at)
        return commits.of("q").run

    assert claim(10, "a", 0) == "a"
    assert claim(11, "b", 11) == "b"
    assert claim(12, "a", 0) == "b"
    assert claim(13, "c", 11) == "b"
    assert claim(14, "b", 5) == "b"
    assert claim(15, "c", 15) == "c"
    assert commits.of("q").garbage == [b"12", b"13"]
    # Of earlier versions, all count.
    assert claim(16, "d", None) == "d"
    commits.apply(b"17", b'{"type":"claim","query":"q","run":"e","at_ms":0,"is_single":false}', 17)
    assert commits.of("q").run == "e"


def test_a_record_of_another_kind_is_passed_over() -> None:
    commits = Commits()
    commits.apply(b"k", b'{"type": "from the future"}')
    commits.apply(b"k", b"no json at all")
    assert commits.queries == {}


@given(st.binary(max_size=60), st.none() | st.binary(max_size=200))
def test_any_bytes_are_taken(key: bytes, value: bytes | None) -> None:
    Commits().apply(key, value)
