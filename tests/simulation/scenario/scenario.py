"""Scenarios: what a seed means, written out, so that parts of it can be left away."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

# Kinds of faults, and how often they come beside each other.
KINDS = {
    "kill": 6,
    "die while writing": 5,
    "stop": 3,
    "freeze": 5,
    "cut one way": 4,
    "cut": 4,
    "isolate": 4,
    "cut from zookeeper": 4,
    "lose answers of zookeeper": 6,
    "expire session": 3,
    "zookeeper server cut off": 3,
    "zookeeper server lags": 3,
    "break connections": 5,
    "slow links": 3,
    "slow disk": 3,
    "full disk": 2,
    "lose power": 5,
    "failing disk": 2,
    "flip a bit": 2,
    "wipe": 3,
    "wrong clock": 2,
    "blackout": 5,
    "lose the answer to a commit": 8,
    "die after a commit": 8,
    "part when somebody joins": 8,
    "freeze a client": 3,
    "stall a connection": 4,
    "kill a new leader": 4,
    "elect a laggard": 4,
}
# Kinds that belong together, for whoever looks for something in particular.
THEMES: dict[str, tuple[str, ...]] = {
    "leaders": ("kill", "isolate", "cut", "die after a commit"),
    "in sync": ("cut", "part when somebody joins", "lose the answer to a commit", "kill"),
    "lives": ("kill", "lose power", "wipe", "stop", "die while writing"),
    "power": ("blackout", "blackout", "slow disk", "isolate"),
    "zookeeper": (
        "cut from zookeeper", "expire session", "lose answers of zookeeper", "freeze",
        "lose the answer to a commit", "zookeeper server lags",
    ),
    "disks": ("flip a bit", "full disk", "failing disk", "kill", "lose power"),
    "groups": ("kill", "isolate", "freeze", "cut from zookeeper", "freeze a client"),
    "producers": ("kill", "break connections"),
    "stale": (
        "zookeeper server lags", "zookeeper server lags", "cut", "kill", "freeze",
    ),
    "late": ("slow links", "break connections", "cut one way", "kill"),
    "moves": ("kill", "isolate", "slow links", "cut"),
    "settings": ("kill", "cut", "isolate"),
    "losses": ("lose power", "wipe"),
    "transactions": ("kill", "isolate", "freeze", "cut", "break connections", "expire session"),
    "late transactions": (
        "slow links", "stall a connection", "stall a connection", "freeze", "freeze a client",
        "cut from zookeeper", "kill",
    ),
    "compaction": ("kill", "die while writing", "stop", "wipe", "isolate", "lose power", "cut"),
    "upgrades": ("kill", "cut", "freeze", "lose answers of zookeeper"),
    "elections": (
        "elect a laggard", "elect a laggard", "kill", "slow links", "zookeeper server lags",
    ),
    "truncations": ("isolate", "kill a new leader", "freeze a client", "stall a connection"),
    "reborn": (
        "wipe", "lose power", "zookeeper server lags", "cut from zookeeper", "slow links",
        "lose answers of zookeeper",
    ),
    "fsync": ("failing disk", "failing disk", "blackout", "kill"),
    "stalls": ("stall a connection", "stall a connection", "freeze a client", "kill"),
    "subscribers": ("kill", "freeze", "isolate", "cut from zookeeper", "freeze a client", "cut"),
    "sharing": ("kill", "isolate", "freeze", "cut", "break connections", "freeze a client"),
    "controllers": ("freeze", "cut from zookeeper", "kill", "expire session"),
}  # fmt: skip
# Shorter times for everything: the cluster changes its mind more often.
BRISK = {
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.wait.max.ms": "300",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "leader.imbalance.check.interval.seconds": "5",
}
# What a coordinator of transactions looks at often enough for minutes.
TRANSACTIONS = {
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "request.timeout.ms": "4000",
}
# A cleaner that has much to do, of small segments.
COMPACTION = {
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "1000",
    "offsets.topic.segment.bytes": "1500",
    "transaction.state.log.segment.bytes": "1500",
}
# The topics of consumer groups of KIP-848 and of share groups, and how often a record is delivered.
SUBSCRIBED = "g"
SHARED = "q"
DELIVERIES = 3
# Sessions and locks that are over within seconds.
GROUPS = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.session.timeout.ms": "6000",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.record.lock.duration.ms": "4000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": str(DELIVERIES),
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
}
# Those after which a broker may lack what it had.
DAMAGING = frozenset(("lose power", "failing disk", "flip a bit", "wipe", "blackout"))
TARGETS = ("leader", "leader", "follower", "controller", "any")
COORDINATORS = ("leader", "coordinator", "coordinator", "follower", "any")
# The topic of most producers.
TOPIC = "t"
# The topic of transactions.
TRANSACTIONAL = "x"
# The topic that is compacted.
COMPACTED = "k"


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong at a time, to somebody, for a while."""

    at_s: float
    kind: str
    target: str
    lasts_s: float
    # A number between 0 and 1, for whatever else there is to choose.
    luck: float

    def __str__(self) -> str:
        return f"{self.at_s:7.2f} s  {self.kind}, {self.target}, for {self.lasts_s:.2f} s"


@dataclass(frozen=True)
class Load:
    """A client, or somebody who administers."""

    kind: str
    name: str
    partition: int = 0
    acks: int = -1
    every_s: float = 1.0
    topic: str = TOPIC
    # Of a producer of transactions: its transactional id, and the dialect that it speaks.
    id: str = ""
    dialect: int = 0


@dataclass(frozen=True)
class Scenario:
    """Everything that a run consists of."""

    seed: int
    lasts_s: float = 120.0
    min_isr: int = 2
    flushes: bool = False
    partitions: int = 2
    faults: tuple[Fault, ...] = ()
    loads: tuple[Load, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    # The epoch after which a producer gets another id; 0: the real one, which no run gets to.
    last_epoch: int = 0
    # What is played in place of faults at random times, and topics that it uses besides.
    script: str = ""
    topics: tuple[str, ...] = ()

    def without(self, *, fault: Fault | None = None, load: Load | None = None) -> Scenario:
        return replace(
            self,
            faults=tuple(each for each in self.faults if each is not fault),
            loads=tuple(each for each in self.loads if each is not load),
        )

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {self.lasts_s:g} s, min.insync.replicas={self.min_isr}, "
            f"{self.partitions} partitions{', each write flushed' if self.flushes else ''}"
            f"{', brisk' if self.settings else ''}{f', {self.script}' if self.script else ''}"
        ]
        lines += [f"  {load}" for load in self.loads]
        lines += [f"  {fault}" for fault in self.faults]
        return "\n".join(lines)


def themed(seed: int, theme: str, lasts_s: float = 25.0) -> Scenario:
    """The scenario of a seed with a theme: a busy partition, and many faults of a few kinds."""
    dice = random.Random(f"{theme} {seed}")
    kinds = THEMES[theme]
    faults: list[Fault] = []
    is_rare = theme == "losses"
    every_s = 4.0 if is_rare else dice.choice([0.5, 1.0, 2.0])
    lengths_s = [0.3, 1.0] if is_rare else [0.05, 0.3, 1.0, 2.5, 4.0]
    targets = {"controllers": ("controller", "controller", "any")}.get(theme, TARGETS)
    is_transactional = "transactions" in theme
    if is_transactional or theme in ("subscribers", "sharing"):
        targets = COORDINATORS
    at_s = 2.0
    while at_s < lasts_s:
        length_s = dice.choice(lengths_s) * dice.uniform(0.5, 1.5)
        faults.append(
            Fault(at_s, dice.choice(kinds), dice.choice(targets), length_s, dice.random())
        )
        at_s += dice.expovariate(1 / every_s)
    loads = [
        Load("idempotent", "idempotent", 0, -1, dice.choice([0.05, 0.2])),
        Load("plain", "plain", 0, dice.choice([-1, 1]), 0.2),
        Load("consumer", "consumer", 0, every_s=0.2),
    ]
    if theme in ("groups", "stalls"):
        loads += [Load("member", f"member-{number}", every_s=0.3) for number in range(2)]
        loads.append(Load("observer", "observer", every_s=0.1))
    if theme == "producers":
        loads += [Load("idempotent", f"more-{number}", 0, -1, 0.2) for number in range(3)]
    if theme in ("stale", "elections", "truncations"):
        loads.append(Load("elect", "elect", every_s=0.3))
    if theme == "elections":
        loads.append(Load("plain", "eager", 0, 1, 0.05))
    if theme == "truncations":
        loads += [Load("idempotent", f"more-{number}", 0, -1, 0.5) for number in range(3)]
    if theme == "settings":
        loads.append(Load("configure", "configure", every_s=1.0))
    if theme == "moves":
        loads.append(Load("reassign", "reassign", every_s=2.0))
    settings = BRISK
    if is_transactional or theme == "compaction":
        loads += transactional(dice, 0.2)
        settings = {**settings, **TRANSACTIONS}
    if theme == "compaction":
        loads += compacted(0.1)
        settings = {**settings, **COMPACTION}
    if theme == "subscribers":
        loads += subscribing(0.2)
    if theme == "sharing":
        loads += sharing(0.2)
    if theme in ("subscribers", "sharing"):
        settings = {**settings, **GROUPS}
    if theme == "upgrades":
        loads.append(Load("upgrade", "upgrader", every_s=1.0))
    return Scenario(
        seed,
        lasts_s,
        min_isr=1 if dice.random() < 0.3 else 2,
        flushes=theme in ("power", "fsync"),
        partitions=1,
        faults=tuple(faults),
        loads=tuple(loads),
        settings=settings,
        last_epoch=6 if is_transactional and dice.random() < 0.3 else 0,
    )


def transactional(dice: random.Random, every_s: float) -> list[Load]:
    """Producers of transactions, some with a rival of the same id, and readers."""
    loads: list[Load] = []
    for kind in ("transactional", "copier"):
        for number in range(1 + (dice.random() < 0.5)):
            name, dialect = f"{kind}-{number}", dice.choice([1, 2, 2])
            loads.append(Load(kind, name, 0, -1, every_s, TRANSACTIONAL, id=kind, dialect=dialect))
    for partition in range(2):
        name = f"committed-{partition}"
        loads.append(Load("committed", name, partition, -1, 2 * every_s, TRANSACTIONAL))
    return loads


def compacted(every_s: float) -> list[Load]:
    """Somebody who writes to a compacted topic, and somebody who reads it through."""
    return [
        Load("keyed", "keyed", 0, -1, every_s, COMPACTED),
        Load("keyed reader", "keyed reader", 0, -1, every_s, COMPACTED),
    ]


def subscribing(every_s: float) -> list[Load]:
    """Members of a consumer group of KIP-848."""
    return [
        Load("subscriber", f"subscriber-{number}", every_s=every_s, topic=SUBSCRIBED)
        for number in range(3)
    ]


def sharing(every_s: float) -> list[Load]:
    """Members of a share group, and somebody who writes what they share."""
    loads = [Load("sharer", f"sharer-{number}", every_s=every_s, topic=SHARED) for number in (0, 1)]
    for partition in (0, 1):
        name = f"giver-{partition}"
        loads.append(Load("idempotent", name, partition, -1, 2 * every_s, SHARED))
    loads.append(Load("elect", "elector of leaders to share from", every_s=1.0, topic=SHARED))
    return loads


def scenario(seed: int, lasts_s: float = 120.0) -> Scenario:
    """The scenario of a seed."""
    dice = random.Random(f"scenario {seed}")
    # Of its own, so that seeds without transactions stay what they were.
    more_dice = random.Random(f"transactions {seed}")
    is_transactional = more_dice.random() < 0.3
    is_brisk = dice.random() < 0.5
    # A few kinds at a time meet each other more often than all of them would.
    kinds = dice.sample(list(KINDS), 2 + dice.randrange(5))
    # Only what was forced to disk survives a power failure of all at once.
    flushes = "blackout" in kinds or dice.random() < 0.15
    # What coordinators write is not.
    is_transactional = is_transactional and not flushes
    targets = TARGETS + COORDINATORS if is_transactional else TARGETS
    weights = [KINDS[kind] for kind in kinds]
    every_s = dice.choice([0.7, 1.5, 3.0] if is_brisk else [2.0, 4.0, 8.0, 15.0])
    lengths_s = [0.05, 0.3, 1.0, 2.5, 4.0] if is_brisk else [0.3, 1.0, 3.0, 7.0, 12.0]
    faults: list[Fault] = []
    at_s = 2.0 + dice.random() * every_s
    while at_s < lasts_s:
        (kind,) = dice.choices(kinds, weights)
        length_s = dice.choice(lengths_s) * dice.uniform(0.5, 1.5)
        faults.append(Fault(at_s, kind, dice.choice(targets), length_s, dice.random()))
        at_s += dice.expovariate(1 / every_s)
    partitions = 1 + dice.randrange(2)
    loads: list[Load] = []
    for number in range(1 + dice.randrange(2)):
        partition = dice.randrange(partitions)
        pace_s = dice.choice([0.3, 1.0, 2.0])
        loads.append(Load("idempotent", f"idempotent-{number}", partition, -1, pace_s))
    if dice.random() < 0.3:
        loads.append(Load("idempotent", "hasty", dice.randrange(partitions), 1, 1.0))
    loads.append(
        Load("plain", "plain", dice.randrange(partitions), dice.choice([-1, -1, 0, 1]), 1.0)
    )
    for number in range(partitions):
        loads.append(Load("consumer", f"consumer-{number}", number, every_s=0.5))
    if dice.random() < 0.4 and not flushes:
        loads += [Load("member", f"member-{number}", every_s=1.0) for number in range(2)]
        loads.append(Load("observer", "observer", every_s=1.0))
    for kind, share in (("reassign", 0.35), ("elect", 0.25), ("configure", 0.2), ("recreate", 0.2)):
        if dice.random() < share and not (flushes and kind == "configure"):
            loads.append(Load(kind, kind, every_s=dice.choice([5.0, 10.0, 20.0])))
            if kind == "recreate":
                loads.append(Load("idempotent", "passing", 0, -1, 0.5, "r"))
    settings = BRISK if is_brisk else {}
    if is_transactional:
        loads += transactional(more_dice, 1.0)
        settings = {**settings, **TRANSACTIONS}
    if more_dice.random() < 0.2 and not flushes:
        loads += compacted(0.5)
        settings = {**settings, **COMPACTION}
    if more_dice.random() < 0.15:
        loads.append(Load("upgrade", "upgrader", every_s=10.0))
    # Of its own once more.
    group_dice = random.Random(f"groups {seed}")
    if not flushes:
        more = subscribing(1.0) if group_dice.random() < 0.2 else []
        more += sharing(0.5) if group_dice.random() < 0.2 else []
        loads += more
        settings = {**settings, **GROUPS} if more else settings
    return Scenario(
        seed,
        lasts_s,
        min_isr=dice.choice([2, 2, 2, 1]),
        flushes=flushes,
        partitions=partitions,
        faults=tuple(faults),
        loads=tuple(loads),
        settings=settings,
        last_epoch=8 if is_transactional and more_dice.random() < 0.3 else 0,
    )
