"""A log in a folder of its own, for the tests that want no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.log.log import Log
from moldau.log.store.store import LogStore
from tests.log.making import make_log, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    store = open_store(tmp_path)
    yield store
    store.close()


@pytest.fixture
def log(store: LogStore) -> Log:
    return make_log(store)
