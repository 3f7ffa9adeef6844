"""Topics, their partitions and the brokers that hold them, as values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import UUID

import msgspec

from moldau.cluster.state.internal_topics import INTERNAL_TOPICS

MAX_NAME_LENGTH = 249
NO_LEADER = -1

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class InvalidTopicName(ValueError):
    """A name that no topic may have; the message says why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"Topic name is invalid: {reason}")
        self.name = name
        self.reason = reason


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicName unless `name` could be the name of a topic."""
    if not name:
        raise InvalidTopicName(name, "the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopicName(name, f"'{name}' is not allowed")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicName(
            name, f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
        )
    if not _LEGAL_NAME.fullmatch(name):
        raise InvalidTopicName(
            name,
            f"'{name}' contains one or more characters other than"
            " ASCII alphanumerics, '.', '_' and '-'",
        )


def collision_key(name: str) -> str:
    """Return the form in which two names must differ: metric names fold '.' into '_'."""
    return name.replace(".", "_")


# The listener of a broker that does not say what its listeners are called.
PLAINTEXT = "PLAINTEXT"


class Endpoint(msgspec.Struct, frozen=True):
    """The address of one of a broker's listeners."""

    listener: str
    host: str
    port: int
    protocol: str = PLAINTEXT


class BrokerInfo(msgspec.Struct, frozen=True):
    """A broker and where it is reached: by other brokers at `host` and `port`, by clients at the
    endpoint of the listener that they came in by.

    Brokers that know of no `endpoints` have one listener, for both, and tell clients to use `host`
    and `port` of all others.

    `epoch` is another with each registration, so that an earlier life of the broker can be told
    from this one; `folder_id` is the identity of its data folder, another after a lost disk. One
    that is `stopping` takes on nothing new. One that `keeps_elr` lets no high watermark move below
    min.insync.replicas, and tells when it comes back whether it lost something (KIP-966). Brokers
    that know of no transactions have 0 for `transaction_version`, and those that know only classic
    groups have 0 for `group_version`; the same is true of `share_version` and share groups.
    """

    id: int
    host: str
    port: int
    rack: str | None = None
    epoch: int = -1
    folder_id: str = ""
    stopping: bool = False
    keeps_elr: bool = False
    endpoints: tuple[Endpoint, ...] = ()
    # The URL where it serves HTTP; empty if it does not.
    http: str = ""
    transaction_version: int = 0
    group_version: int = 0
    share_version: int = 0

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return where clients of this listener reach the broker; None if it has no
        such listener."""
        for each in self.endpoints:
            if each.listener == listener:
                return each
        if not self.endpoints and listener == PLAINTEXT:
            return Endpoint(PLAINTEXT, self.host, self.port)
        return None

    @property
    def knows_envelopes(self) -> bool:
        """Whether it passes requests on in envelopes: endpoints came with them in one release."""
        return bool(self.endpoints)


class PartitionState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The replicas of a partition. The first one is the preferred leader; `isr` is a subset.

    While the partition moves, `replicas` holds the old and the new ones: `adding` are to be there
    at the end, `removing` are not.

    `elr` are the eligible leader replicas of KIP-966: not in sync, but with everything that is
    committed, since they were in sync and the high watermark has not moved after that. Nobody is
    both. While there is no leader, `last_known_elr` names the last one. `lost` are replicas that
    came back without what they had, with where their logs ended before, until they are in sync
    again or what they had is put back. That is -1 if it is not known, or somebody has led since:
    then how long a log is does not tell what was put back from what was copied.

    Brokers that do not know the last three drop them whenever they write the topic. That costs
    somebody the right to lead, and no data.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()


def minimum_isr(setting: int, replicas: Sequence[int], adding: Sequence[int]) -> int:
    """Return how many have to be in sync where min.insync.replicas is this: all that there are, if
    those are fewer. Replicas that are only being made do not count yet."""
    return min(setting, len(replicas) - len(adding))


class Topic(msgspec.Struct, frozen=True):
    """A topic: its partitions by index, and its own settings as they were given.

    `configs` is never changed in place; a change of settings makes another Topic.
    """

    name: str
    id: UUID
    partitions: tuple[PartitionState, ...]
    configs: dict[str, str] = {}

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS
