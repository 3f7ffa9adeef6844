"""A firewall that refuses connections in the name of a broker that lives."""

from __future__ import annotations

import pytest

from moldau.cluster.liveness import MOST_REPORTS
from moldau.testing import Cluster, Ensemble

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize("is_controller", [False, True], ids=["a broker", "the controller"])
def test_a_broker_behind_a_firewall_is_not_expelled_again_and_again(
    ensemble: Ensemble, is_controller: bool
) -> None:
    with Cluster(3, ensemble, can_be_cut=True) as cluster:
        first = cluster.controller()
        hidden = first if is_controller else next(b for b in cluster.brokers if b != first)
        # Everybody is refused at its address, while it reaches ZooKeeper and the others.
        cluster._cables.end(cluster._members[hidden].advertised_port)
        cluster.break_connections(hidden)

        def said(what: str) -> int:
            return sum(cluster.log(broker).read_text().count(what) for broker in cluster.brokers)

        cluster.wait_until(lambda: said("is there a firewall in between?") > 0, "it is noticed")
        cluster.wait_until(
            lambda: all(hidden in cluster.view(b).brokers for b in cluster.brokers), "it is back"
        )
        # Each of the others may have been wrong once. A controller that is elected again at once
        # looks to them as if it had never been removed, so they may try that a few times.
        assert said(f"removed the registration of broker {hidden}") <= 2
        assert said(f"took over as controller from broker {hidden}") <= 2 * MOST_REPORTS
        # Who dies for good is noticed as soon as ever, and so is who has come back into sight.
        epochs = said(f"registered as broker {hidden} ")
        other = next(b for b in cluster.brokers if b not in (hidden, cluster.controller()))
        cluster.kill(other)
        cluster.wait_until(
            lambda: all(other not in cluster.view(b).brokers for b in cluster.running), "gone"
        )
        assert said(f"registered as broker {hidden} ") <= epochs + 1
