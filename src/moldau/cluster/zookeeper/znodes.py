"""Znodes: the paths in ZooKeeper and the format of their data.

    /moldau-version           the format of all this: 1
    /id                       the cluster's id
    /controller               ephemeral: {"id", "epoch"} of the controller
    /controller-epoch         how many elections there were; its version goes up with each
    /brokers/<id>             ephemeral: where the broker is reached; its epoch is the czxid
    /folders/<id>             the identity of the data folder that the broker last came with; its
                              version goes up with each registration
    /topics/<name>            the whole topic: id, partitions, settings
    /ids/<topic id>           exists as long as the topic does. A write to a topic also checks this
                              node, for versions begin anew when a topic is deleted and created
    /configs/brokers/<id>     dynamic settings of one broker, or those of all: "default"
    /access/<key>             rules of a resource, quotas of an entity, credentials of a user or
                              settings of a group; all that there is to say about one, and gone
                              when that is nothing
    /producer-ids             the next producer id
    /deleted/<topic id>       the topic was deleted: whoever comes back later may remove its folders
    /changes/c-<sequence>     what changed, in order; trimmed, and never empty

Every write to what brokers keep in memory is part of a transaction that also appends to /changes.
"""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

import msgspec

from moldau.cluster.decisions.access import checked_binding
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.access import AccessEntry, AclsChanged, QuotasChanged
from moldau.cluster.state.topics import (
    BrokerInfo,
    InvalidTopicName,
    Topic,
    check_topic_name,
)

FORMAT = b"1"

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


class DamagedNode(Exception):
    """A node holds what Moldau did not write there."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} in ZooKeeper is damaged: {reason}")


class Paths:
    """The nodes' paths below a chroot, which is "" or begins with a slash."""

    def __init__(self, chroot: str) -> None:
        self.chroot = chroot
        self.format = f"{chroot}/moldau-version"
        self.id = f"{chroot}/id"
        self.controller = f"{chroot}/controller"
        self.controller_epoch = f"{chroot}/controller-epoch"
        self.brokers = f"{chroot}/brokers"
        self.folders = f"{chroot}/folders"
        self.topics = f"{chroot}/topics"
        self.ids = f"{chroot}/ids"
        self.configs = f"{chroot}/configs"
        self.broker_configs = f"{chroot}/configs/brokers"
        self.access = f"{chroot}/access"
        self.producer_ids = f"{chroot}/producer-ids"
        self.deleted = f"{chroot}/deleted"
        self.changes = f"{chroot}/changes"
        self.new_change = f"{chroot}/changes/c-"

    def broker(self, id: int) -> str:
        return f"{self.brokers}/{id}"

    def folder(self, id: int) -> str:
        return f"{self.folders}/{id}"

    def topic(self, name: str) -> str:
        return f"{self.topics}/{name}"

    def topic_id(self, id: UUID) -> str:
        return f"{self.ids}/{id}"

    def deleted_topic(self, id: UUID) -> str:
        return f"{self.deleted}/{id}"

    def broker_config(self, id: int | None) -> str:
        return f"{self.broker_configs}/{'default' if id is None else id}"

    def access_entry(self, key: str) -> str:
        return f"{self.access}/{key}"

    def change(self, name: str) -> str:
        return f"{self.changes}/{name}"


class Holder(msgspec.Struct, frozen=True):
    """The controller, and the election that made it so."""

    id: int
    epoch: int


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """The changes of one transaction. `commit` is unique, so that a sender that got no answer can
    find out whether the transaction happened.
    """

    commit: str
    broker: int = msgspec.field(name="from")
    topics: tuple[str, ...] = ()
    brokers: bool = False
    configs: bool = False
    access: tuple[str, ...] = ()


_holders = msgspec.json.Decoder(Holder)
_notices = msgspec.json.Decoder(Notice)
_topics = msgspec.json.Decoder(Topic)
_infos = msgspec.json.Decoder(BrokerInfo)
_configs = msgspec.json.Decoder(dict[str, str])
_access: msgspec.json.Decoder[AccessEntry] = msgspec.json.Decoder(AccessEntry)


def split_connect(connect: str) -> tuple[str, str]:
    """HOST:PORT,...[/CHROOT] as the hosts and the chroot; ValueError if it is not of that form."""
    hosts, slash, chroot = connect.strip().partition("/")
    if not hosts or not all(host.strip() for host in hosts.split(",")):
        raise ValueError(f"'{connect}' names no ZooKeeper servers; write HOST:PORT,...[/CHROOT]")
    parts = [part for part in chroot.split("/") if part]
    if any(part in (".", "..") for part in parts):
        raise ValueError(f"'{slash}{chroot}' cannot be a chroot in ZooKeeper")
    return hosts, "".join(f"/{part}" for part in parts)


def encode_holder(holder: Holder) -> bytes:
    return _encode(holder)


def decode_holder(path: str, data: bytes) -> Holder:
    return _decoded(_holders, path, data)


def encode_notice(notice: Notice) -> bytes:
    return _encode(notice)


def decode_notice(path: str, data: bytes) -> Notice:
    return _decoded(_notices, path, data)


def encode_topic(topic: Topic) -> bytes:
    return _encode(topic)


def decode_topic(path: str, name: str, data: bytes) -> Topic:
    """Return the topic that the node `name` holds; DamagedNode if it could not be
    served as it is."""
    topic = _decoded(_topics, path, data)
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise DamagedNode(path, str(error)) from error
    if topic.name != name:
        raise DamagedNode(path, f"it holds the topic '{topic.name}'")
    if not topic.partitions:
        raise DamagedNode(path, "the topic has no partitions")
    for index, partition in enumerate(topic.partitions):
        if not partition.replicas or len(set(partition.replicas)) < len(partition.replicas):
            raise DamagedNode(path, f"the replicas of partition {index} are {partition.replicas}")
        if not set(partition.isr) <= set(partition.replicas):
            raise DamagedNode(
                path, f"in-sync replicas of partition {index} are not among its replicas"
            )
        if not set(partition.elr) <= set(partition.replicas) - set(partition.isr):
            raise DamagedNode(path, f"the eligible replicas of partition {index} are not valid")
    return topic


def encode_broker(info: BrokerInfo) -> bytes:
    # The epoch is the node's own and not known before the node is there.
    fields = msgspec.structs.asdict(info)
    del fields["epoch"]
    return _encode(fields)


def decode_broker(path: str, id: int, data: bytes, epoch: int) -> BrokerInfo:
    info = _decoded(_infos, path, data)
    if info.id != id:
        raise DamagedNode(path, f"it holds the registration of broker {info.id}")
    return msgspec.structs.replace(info, epoch=epoch)


def encode_configs(configs: dict[str, str]) -> bytes:
    return _encode(configs)


def decode_configs(path: str, data: bytes) -> dict[str, str]:
    return _decoded(_configs, path, data)


def encode_access(change: AccessEntry) -> bytes:
    return _encode(change)


def decode_access(path: str, key: str, data: bytes) -> AccessEntry:
    """Return the entry that the node `key` holds; DamagedNode if it is not as it was written."""
    change = _decoded(_access, path, data)
    if change.key != key:
        raise DamagedNode(path, f"it holds the entry '{change.key}'")
    if change.is_empty:
        raise DamagedNode(path, "it is empty")
    if isinstance(change, AclsChanged):
        try:
            for acl in change.acls:
                checked_binding(change.resource, acl)
        except ClusterError as error:
            raise DamagedNode(path, error.message) from error
    if isinstance(change, QuotasChanged) and not all(each > 0 for each in change.limits.values()):
        raise DamagedNode(path, "a limit must be greater than 0")
    return change


def decode_number(path: str, data: bytes) -> int:
    text = data.decode("ascii", "replace").strip()
    if not text.isdecimal() or len(text) > 18:
        raise DamagedNode(path, f"'{text[:40]}' is not a number")
    return int(text)


def decode_broker_id(path: str, name: str) -> int:
    if not name.isascii() or not name.isdecimal() or len(name) > 10:
        raise DamagedNode(f"{path}/{name}", "its name is not the id of a broker")
    return int(name)


def decode_config_name(path: str, name: str) -> int | None:
    return None if name == "default" else decode_broker_id(path, name)


def decode_topic_id(path: str, name: str) -> UUID:
    try:
        return UUID(name)
    except ValueError:
        raise DamagedNode(f"{path}/{name}", "its name is not the id of a topic") from None


def _decoded(decoder: msgspec.json.Decoder[T], path: str, data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedNode(path, str(error)) from error
