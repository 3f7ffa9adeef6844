"""ZooKeeper for the scenarios: one ensemble for all; each cluster has a place of its own in it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from moldau.testing import Ensemble

NO_ZOOKEEPER = find_spec("pyspark") is None


@pytest.fixture(scope="session")
def ensemble() -> Iterator[Ensemble]:
    if NO_ZOOKEEPER:
        pytest.skip("no clusters without pyspark, which brings ZooKeeper")
    with Ensemble() as ensemble:
        yield ensemble
