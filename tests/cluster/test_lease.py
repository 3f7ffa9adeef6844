from __future__ import annotations

import math
import time

from moldau.cluster import clock
from moldau.cluster.lease import Lease


def new_lease() -> tuple[Lease, list[str]]:
    ends: list[str] = []
    return Lease(6.0, 100.0, lambda: ends.append("over")), ends


def test_a_lease_runs_from_when_the_last_answered_request_was_sent() -> None:
    lease, ends = new_lease()
    assert lease.ends_at == 106.0
    lease.renew(sent_at=104.0, now=104.5)
    assert lease.ends_at == 110.0
    # An answer to something older came late.
    lease.renew(sent_at=101.0, now=105.0)
    assert lease.ends_at == 110.0
    lease.duration = 4.0
    assert lease.ends_at == 108.0
    assert ends == []


def test_a_lease_ends_once_and_for_all_who_ask() -> None:
    lease, ends = new_lease()
    for _ in range(2):
        lease.expire()
        assert lease.ends_at == math.inf
    assert ends == ["over"]
    assert lease.renew(sent_at=110.0, now=110.5)
    assert lease.ends_at == 116.0
    assert not lease.renew(sent_at=111.0, now=111.5)


def test_an_answer_after_a_pause_renews_a_lease_only_after_it_has_ended() -> None:
    lease, ends = new_lease()
    # Asked before the pause: nothing is known of the time since.
    assert not lease.renew(sent_at=101.0, now=120.0)
    assert lease.is_over
    assert ends == ["over"]
    assert lease.renew(sent_at=120.0, now=120.5)
    lease, ends = new_lease()
    # Asked after it: the session lives, but whoever looked at the lease must have seen it end.
    assert lease.renew(sent_at=120.0, now=120.5)
    assert ends == ["over"]


def test_an_answer_that_is_only_taken_in_late_renews_a_lease_as_if_in_time() -> None:
    lease, ends = new_lease()
    assert not lease.renew(sent_at=105.0, now=107.0)
    assert lease.ends_at == 111.0
    assert ends == []


def test_a_suspended_machine_counts() -> None:
    wanted = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    before = time.clock_gettime(wanted)
    assert before <= clock.now() <= time.clock_gettime(wanted)
