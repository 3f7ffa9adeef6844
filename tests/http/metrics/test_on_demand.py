"""Parts that a scrape leaves alone: those of a broker that nobody has needed yet."""

from __future__ import annotations

from moldau.testing import Broker
from tests.http.scraping import Scrape


def test_a_scrape_builds_no_share_groups() -> None:
    """To load them holds the event loop for as long as a stall takes."""
    with Broker(http_listen="127.0.0.1:0") as broker:
        assert broker._server is not None
        scrape = Scrape(broker.http_url)
        assert scrape.value("moldau_dead_letters_total") == 0
        assert broker._server._shares.built is None
