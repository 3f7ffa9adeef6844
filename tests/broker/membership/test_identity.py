"""Identity of a data folder: whose it is, and what happens when it is somebody else's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.broker.membership.identity import Identity, WrongFolder
from moldau.cluster.embedded import FILE_NAME
from moldau.log.config import LogConfig
from moldau.log.store.store import LogStore


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogStore]:
    store = LogStore(tmp_path, defaults=LogConfig(), max_open_files=16)
    store.open()
    yield store
    store.close()


def test_an_empty_folder_becomes_the_brokers_and_keeps_its_id(logs: LogStore) -> None:
    first = Identity(logs, 3)
    first.claim("a-cluster")
    again = Identity(logs, 3)
    again.claim("a-cluster")

    assert first.folder_id
    assert again.folder_id == first.folder_id
    assert logs.meta["cluster.id"] == "a-cluster"
    assert logs.meta["node.id"] == "3"


def test_two_folders_never_have_the_same_id(tmp_path: Path) -> None:
    ids = set()
    for name in ("one", "two"):
        store = LogStore(tmp_path / name, defaults=LogConfig(), max_open_files=16)
        store.open()
        identity = Identity(store, 0)
        identity.claim("a-cluster")
        store.close()
        ids.add(identity.folder_id)

    assert len(ids) == 2


@pytest.mark.parametrize(
    ("broker", "cluster", "said"),
    [(3, "another", "cluster.id=a-cluster"), (4, "a-cluster", "node.id=3")],
)
def test_a_folder_of_another_broker_or_cluster_is_refused_and_left_alone(
    logs: LogStore, broker: int, cluster: str, said: str
) -> None:
    Identity(logs, 3).claim("a-cluster")
    before = logs.meta

    with pytest.raises(WrongFolder, match=said):
        Identity(logs, broker).claim(cluster)

    assert logs.meta == before


def test_the_folder_of_a_broker_alone_joins_no_cluster(logs: LogStore) -> None:
    identity = Identity(logs, 0)
    identity.check_clustered()
    (Path(logs.folder) / FILE_NAME).touch()

    with pytest.raises(WrongFolder, match="without --zookeeper"):
        identity.check_clustered()


def test_the_folder_of_a_clusters_broker_is_not_served_alone(logs: LogStore) -> None:
    identity = Identity(logs, 0)
    identity.check_alone()
    identity.claim("a-cluster")

    with pytest.raises(WrongFolder, match="with --zookeeper"):
        identity.check_alone()
