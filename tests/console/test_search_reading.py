"""Reading for a search: small fetches, so that others need not wait, and large batches of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.console.search.request import Range
from moldau.peer.cluster import Cluster
from moldau.peer.view import parse_bootstrap
from moldau.testing import Broker
from tests.console.page.filling import fill

pytest.importorskip("pyarrow")

COUNT = 8_000
VALUE = "v" * 500


@pytest.fixture(scope="module")
def cluster(shared_broker: Broker) -> Iterator[Cluster]:
    """A cluster with a topic of four megabytes, in batches of a hundred kilobytes."""
    shared_broker.create_topic("read", 1)
    for first in range(0, COUNT, 200):
        messages = [(str(number), VALUE) for number in range(first, first + 200)]
        fill(shared_broker, "read", messages)
    with Cluster(parse_bootstrap(shared_broker.bootstrap)) as cluster:
        yield cluster


def test_a_query_has_enough_though_fetches_bring_little(cluster: Cluster) -> None:
    from moldau.console.search.reading import RangeReader

    reader = RangeReader(cluster, "read", Range(0, 10, COUNT - 10), follows=False)
    sizes: list[int] = []
    offsets: list[int] = []
    while not reader.is_done:
        for batch in reader.read():
            sizes.append(batch.nbytes)
            offsets += batch.column("offset").to_pylist()
    reader.close()

    assert offsets == list(range(10, COUNT - 10))
    assert min(sizes[:-1]) >= 1 << 20
    assert len(sizes) <= 3


def test_what_is_followed_is_shown_as_it_comes(cluster: Cluster) -> None:
    from moldau.console.search.reading import RangeReader

    reader = RangeReader(cluster, "read", Range(0, 0, 0), follows=True)
    first = list(reader.read())
    reader.close()

    assert sum(batch.nbytes for batch in first) < 1 << 20
