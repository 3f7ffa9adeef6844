"""Losses: what a broker finds of its replicas when it comes back, however it ended."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from uuid import UUID

import pytest

from moldau.broker.membership.losses import Losses
from moldau.broker.server import Broker
from moldau.broker.settings.broker import BrokerSettings
from moldau.cluster.decisions.elections import Held, Loss
from moldau.cluster.state.topics import PartitionState, Topic
from moldau.cluster.store import StoreError
from moldau.local.ports import free_ports
from moldau.log.errors import StorageError
from tests.log.making import TOPIC_ID, batch_of, make_log, open_store, put

TOPIC = Topic("t", TOPIC_ID, (PartitionState((0,), (0,), 0),))
REGISTRATION = 7


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def live(folder: Path, *, stops: bool) -> None:
    """A life in which seven records are written."""
    store = open_store(folder)
    store.life.begin(REGISTRATION, store.logs.values())
    log = store.logs.get(("t", 0)) or make_log(store)
    put(log, batch_of(3), batch_of(4))
    store.checkpoint()
    if stops:
        store.close()
    else:
        store.abandon()


def found(
    folder: Path, registration: int = REGISTRATION, topic: Topic = TOPIC, **how: bool
) -> Held:
    store = open_store(folder)
    try:
        return Losses(store, registration, **how)(topic, 0)
    finally:
        store.leave_as_found()


@pytest.mark.parametrize("stops", [True, False])
def test_what_is_missing_from_a_log_is_noticed_however_its_broker_ended(
    folder: Path, stops: bool
) -> None:
    live(folder, stops=stops)
    backup = folder.parent / "backup"
    shutil.copytree(folder / "t-0", backup)
    assert found(folder) == Held(Loss.NONE, 7)
    (segment,) = (folder / "t-0").glob("*.log")
    os.truncate(segment, segment.stat().st_size // 2)
    assert found(folder) == Held(Loss.ALL, 3, 7)
    shutil.rmtree(folder / "t-0")
    assert found(folder) == Held(Loss.ALL, 0, 7)
    # What is put back is not missing any more, as long as nobody was told that it is.
    shutil.move(backup, folder / "t-0")
    assert found(folder) == Held(Loss.NONE, 7)


def test_a_log_that_was_not_there_is_not_missing(folder: Path) -> None:
    store = open_store(folder)
    store.life.begin(REGISTRATION, store.logs.values())
    store.abandon()
    assert found(folder) == Held(Loss.NONE, 0), "the topic was created when the broker had ended"


@pytest.mark.parametrize("stops", [True, False])
def test_after_another_life_nothing_is_sure(folder: Path, stops: bool) -> None:
    live(folder, stops=stops)
    assert found(folder, REGISTRATION + 1) == Held(Loss.TAIL, 7)
    shutil.rmtree(folder / "t-0")
    assert found(folder, REGISTRATION + 1) == Held(Loss.ALL, 0, 7)


def test_a_power_failure_costs_the_end_of_a_log_and_not_the_log(folder: Path) -> None:
    live(folder, stops=False)
    (folder / "log-ends").unlink()
    assert found(folder) == Held(Loss.TAIL, 7, kept_elr=False)
    (segment,) = (folder / "t-0").glob("*.log")
    os.truncate(segment, segment.stat().st_size // 2)
    assert found(folder) == Held(Loss.TAIL, 3, kept_elr=False), (
        "though the high watermark was beyond it"
    )
    shutil.rmtree(folder / "t-0")
    assert found(folder) == Held(Loss.ALL, 0, 7)


def test_a_folder_of_a_broker_that_kept_no_record_is_believed_after_a_clean_stop(
    folder: Path,
) -> None:
    live(folder, stops=True)
    (folder / "log-ends").unlink()
    assert found(folder, 99) == Held(Loss.NONE, 7, kept_elr=False)
    shutil.rmtree(folder / "t-0")
    assert found(folder, 99) == Held(Loss.ALL, 0, 7)


def test_a_topic_created_anew_is_not_missed_for_the_one_that_was_deleted(folder: Path) -> None:
    store = open_store(folder)
    store.life.begin(REGISTRATION, store.logs.values())
    put(make_log(store), batch_of(7))
    store.checkpoint()
    store.delete("t", 0)
    store.create("t", 0, UUID(int=8))
    store.abandon()
    # The power fails, and nothing of the new folder was forced to disk.
    shutil.rmtree(folder / "t-0")
    (folder / "log-ends").unlink()
    again = Topic("t", UUID(int=8), TOPIC.partitions)
    assert found(folder, topic=again) == Held(Loss.TAIL, 0, kept_elr=False)


@pytest.mark.parametrize("stops", [True, False])
def test_the_log_of_a_deleted_topic_says_nothing_of_the_one_with_its_name(
    folder: Path, stops: bool
) -> None:
    live(folder, stops=stops)
    again = Topic("t", UUID(int=8), TOPIC.partitions)
    assert found(folder, topic=again) == Held(Loss.NONE, 0)
    (folder / "log-ends").unlink()
    loss = Loss.NONE if stops else Loss.TAIL
    assert found(folder, topic=again) == Held(loss, 0, kept_elr=False)


def test_a_damaged_log_is_not_in_sync_and_another_folder_holds_nothing(folder: Path) -> None:
    live(folder, stops=False)
    store = open_store(folder)
    store.logs["t", 0].abandon(StorageError("t-0", "damaged"))
    assert Losses(store, REGISTRATION)(TOPIC, 0) == Held(Loss.TAIL)
    assert Losses(store, is_same_life=True)(TOPIC, 0) == Held(Loss.TAIL)
    store.abandon()
    assert found(folder, is_wiped=True) == Held(Loss.ALL)


def test_a_broker_that_cannot_enter_its_cluster_leaves_the_signs_for_its_next_start(
    folder: Path,
) -> None:
    live(folder, stops=True)
    shutil.rmtree(folder / "t-0")
    [port] = free_ports(1)
    settings = {
        "listeners": "127.0.0.1:0",
        "log.dirs": str(folder),
        "zookeeper.connect": f"127.0.0.1:{port}",
        "zookeeper.connection.timeout.ms": "200",
    }

    async def start() -> None:
        with pytest.raises(StoreError):
            await Broker(BrokerSettings.parse(settings)).start()

    asyncio.run(asyncio.wait_for(start(), 60))
    assert found(folder) == Held(Loss.ALL, 0, 7)
