from __future__ import annotations

from moldau.cluster.zookeeper.lease import Lease


def test_a_lease_runs_from_when_the_last_answered_request_was_sent() -> None:
    lease = Lease(6.0, now=100.0)
    assert not lease.is_over(105.9)
    assert lease.is_over(106.0)
    lease.renew(sent_at=104.0)
    assert not lease.is_over(109.9)
    # An answer to something older came late.
    lease.renew(sent_at=101.0)
    assert lease.ends_at == 110.0
