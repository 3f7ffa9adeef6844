"""Bytes from ZooKeeper: they are understood, or DamagedNode says why not."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.state.topics import BrokerInfo, Endpoint, PartitionState, Topic
from moldau.cluster.zookeeper import znodes
from moldau.cluster.zookeeper.znodes import DamagedNode, Holder, Notice

DECODERS: list[Callable[[bytes], Any]] = [
    lambda data: znodes.decode_topic("/t", "t", data),
    lambda data: znodes.decode_broker("/b", 1, data, 5),
    lambda data: znodes.decode_configs("/c", data),
    lambda data: znodes.decode_holder("/h", data),
    lambda data: znodes.decode_notice("/n", data),
    lambda data: znodes.decode_number("/x", data),
    lambda data: znodes.decode_broker_id("/b", data.decode("utf-8", "replace")),
    lambda data: znodes.decode_config_name("/b", data.decode("utf-8", "replace")),
    lambda data: znodes.decode_topic_id("/d", data.decode("utf-8", "replace")),
]

TOPIC = Topic("t", uuid.UUID(int=7), (PartitionState((1, 2), (1,), 1, 3, (2,), (1,)),), {"a": "b"})
SAMPLES = [
    znodes.encode_topic(TOPIC),
    znodes.encode_broker(BrokerInfo(1, "h", 9, "rack", 4, "f")),
    znodes.encode_configs({"a": "b"}),
    znodes.encode_holder(Holder(1, 2)),
    znodes.encode_notice(Notice("c", 1, ("t",), brokers=True, configs=True)),
    b"12",
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "name", "partitions", "configs", "host", "port", "epoch", "from"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=10,
)


@st.composite
def bent(draw: st.DrawFn) -> bytes:
    """Something that was written by us, with a few bytes changed."""
    data = bytearray(draw(st.sampled_from(SAMPLES)))
    for _ in range(draw(st.integers(0, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@given(st.binary(max_size=60) | json_values.map(lambda v: json.dumps(v).encode()) | bent())
def test_whatever_the_bytes_are_they_are_understood_or_damaged(data: bytes) -> None:
    for decode in DECODERS:
        with contextlib.suppress(DamagedNode):
            decode(data)


def test_what_is_written_is_read_again() -> None:
    assert znodes.decode_topic("/t", "t", SAMPLES[0]) == TOPIC
    assert znodes.decode_broker("/b", 1, SAMPLES[1], 8) == BrokerInfo(1, "h", 9, "rack", 8, "f")
    assert znodes.decode_configs("/c", SAMPLES[2]) == {"a": "b"}
    assert znodes.decode_holder("/h", SAMPLES[3]) == Holder(1, 2)
    notice = znodes.decode_notice("/n", SAMPLES[4])
    assert notice == Notice("c", 1, ("t",), brokers=True, configs=True)


class OldPartitionState(msgspec.Struct, array_like=True):
    """As brokers know it that do not know of eligible leader replicas."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


def test_old_and_new_brokers_read_each_others_partitions() -> None:
    new = PartitionState((1, 2), (), -1, 3, elr=(1,), last_known_elr=(1,), lost=((2, 60),))
    old = msgspec.json.decode(msgspec.json.encode(new), type=OldPartitionState)
    assert old == OldPartitionState((1, 2), (), -1, 3)
    read = msgspec.json.decode(msgspec.json.encode(old), type=PartitionState)
    assert read == PartitionState((1, 2), (), -1, 3)
    assert msgspec.json.decode(msgspec.json.encode(new), type=PartitionState) == new
    old_info = {"id": 1, "host": "h", "port": 9, "rack": None, "folder_id": "f", "stopping": False}
    assert not znodes.decode_broker("/b", 1, json.dumps(old_info).encode(), 8).keeps_elr


class OldBrokerInfo(msgspec.Struct, frozen=True):
    """A broker as those knew it that had one listener."""

    id: int
    host: str
    port: int
    rack: str | None = None
    epoch: int = -1
    folder_id: str = ""
    stopping: bool = False
    keeps_elr: bool = False


def test_old_and_new_brokers_read_each_others_registrations() -> None:
    endpoints = (Endpoint("OUTSIDE", "o", 1), Endpoint("INSIDE", "i", 2))
    new = BrokerInfo(1, "i", 2, "rack", 8, "f", keeps_elr=True, endpoints=endpoints)
    written = znodes.encode_broker(new)
    assert znodes.decode_broker("/b", 1, written, 8) == new
    assert new.endpoint("OUTSIDE") == endpoints[0]
    assert new.endpoint("PLAINTEXT") is None
    # The old one reaches the new one by the listener for brokers.
    old = msgspec.json.decode(written, type=OldBrokerInfo)
    assert old == OldBrokerInfo(1, "i", 2, "rack", -1, "f", keeps_elr=True)
    read = znodes.decode_broker("/b", 1, msgspec.json.encode(old), 8)
    assert read == BrokerInfo(1, "i", 2, "rack", 8, "f", keeps_elr=True)
    assert read.endpoint("PLAINTEXT") == Endpoint("PLAINTEXT", "i", 2)
    assert read.endpoint("INSIDE") is None


@pytest.mark.parametrize(
    "partitions",
    [
        [],
        [[[], [], -1]],
        [[[1, 1], [1], 1]],
        [[[1], [1, 2], 1]],
        [[[1, 2], [1], 1, 0, [], [], [1]]],
    ],
)
def test_a_topic_that_could_not_be_served_is_damaged(partitions: list[object]) -> None:
    data = json.dumps({"name": "t", "id": str(TOPIC.id), "partitions": partitions}).encode()
    with pytest.raises(DamagedNode):
        znodes.decode_topic("/t", "t", data)


def test_a_topic_under_another_name_is_damaged() -> None:
    with pytest.raises(DamagedNode, match="holds the topic 't'"):
        znodes.decode_topic("/u", "u", SAMPLES[0])


@pytest.mark.parametrize(
    ("connect", "hosts", "chroot"),
    [
        ("a:1", "a:1", ""),
        ("a:1,b:2/", "a:1,b:2", ""),
        ("a:1,b:2/x//y/", "a:1,b:2", "/x/y"),
    ],
)
def test_a_connect_string_is_hosts_and_a_chroot(connect: str, hosts: str, chroot: str) -> None:
    assert znodes.split_connect(connect) == (hosts, chroot)
