"""A part of the ensemble for each test alone."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from moldau.testing import Ensemble


@pytest.fixture
def chroot() -> str:
    return f"/test-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def connect(ensemble: Ensemble, chroot: str) -> str:
    return ensemble.hosts + chroot


@pytest.fixture
def raw(ensemble: Ensemble, chroot: str) -> Iterator[KazooClient]:
    """Somebody else with access to the cluster's nodes."""
    client = KazooClient(ensemble.hosts + chroot, timeout=20)
    assert client.start_async().wait(60)
    client.ensure_path("/")
    yield client
    client.stop()
    client.close()
