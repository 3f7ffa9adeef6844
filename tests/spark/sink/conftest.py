"""A query, a topic and a committer, for staging and committing by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from moldau.peer.cluster import Cluster
from moldau.spark.sink.committing import Committer
from moldau.spark.sink.staging_settings import StagingSettings
from moldau.testing import Broker
from tests.spark.sink.staging import staging
from tests.spark.topics import fresh_topic

_queries = itertools.count()


@pytest.fixture
def query() -> str:
    return f"query-{next(_queries)}"


@pytest.fixture
def settings(moldau_session_broker: Broker) -> StagingSettings:
    return staging(moldau_session_broker)


@pytest.fixture
def committer(settings: StagingSettings) -> Iterator[Committer]:
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        yield Committer(cluster)


@pytest.fixture
def topic(moldau_session_broker: Broker) -> str:
    return fresh_topic(moldau_session_broker, partitions=2)
