"""Truncation by epochs, on values: two logs that share a beginning, and the dialogue of both."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.replication.divergence import common_end
from moldau.log.epochs import LeaderEpochs

# A log as the epochs of its records, one a batch.
Log = list[int]


def epochs_of(log: Log) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for offset, epoch in enumerate(log):
        if epoch > epochs.latest:
            epochs.assign(epoch, offset)
    return epochs


@st.composite
def parted_logs(draw: st.DrawFn) -> tuple[Log, Log]:
    """Two logs as any history of elections leaves them: no epoch was written by both alone."""
    common = sorted(draw(st.lists(st.integers(0, 4), max_size=8)))
    least = common[-1] if common else 0
    owners = draw(st.lists(st.sampled_from("ab"), min_size=12, max_size=12))
    first, second = list(common), list(common)
    for epoch in range(least, 12):
        size = draw(st.integers(0, 3))
        # The epoch that both share may have been gone on with by one of them.
        (first if owners[epoch] == "a" else second).extend([epoch] * size)
    return first, second


@given(parted_logs(), st.booleans())
def test_the_follower_keeps_what_both_have_and_nothing_else(
    logs: tuple[Log, Log], leader_wrote: bool
) -> None:
    leader, follower = logs
    if leader_wrote:
        leader = [*leader, 13]
    leaders = epochs_of(leader)
    leaders.assign(14, len(leader))
    shared = 0
    for ours, theirs in zip(leader, follower, strict=False):
        if ours != theirs:
            break
        shared += 1
    for _ in range(20):
        own = epochs_of(follower)
        if own.latest < 0:
            break
        epoch, end = leaders.end_of(own.latest, len(leader))
        if epoch == own.latest and end >= len(follower):
            break
        cut = common_end(own, len(follower), epoch, end)
        assert cut < len(follower), "a round without progress"
        follower = follower[:cut]
    else:
        raise AssertionError("it does not end")
    assert follower == leader[: len(follower)]
    assert len(follower) == shared


def test_a_leader_without_the_followers_epochs_cuts_it_to_where_its_own_begin() -> None:
    own = LeaderEpochs([(3, 0)])
    leaders = LeaderEpochs([(5, 4)])
    epoch, end = leaders.end_of(3, 20)
    assert common_end(own, 10, epoch, end) == 4
    assert common_end(LeaderEpochs(), 10, 3, 7) == 7
