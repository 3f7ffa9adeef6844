"""Problems: what is wrong with a cluster, the worst first, and what to do about it."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from moldau.console.diagnosis import in_words
from moldau.console.sampling.sample import Sample
from moldau.peer.hanging import abort_command

ERROR, WARNING, INFO = "error", "warning", "info"
_ORDER = (ERROR, WARNING, INFO)
# A group that is further behind than this is worth a word.
_LATE_S = 60.0


class Where(msgspec.Struct):
    """The kind and name of the thing that a problem is about."""

    kind: str
    name: str


class Problem(msgspec.Struct):
    """Something that is wrong. `topic` is one that `what` names, too."""

    severity: str
    what: str
    where: Where
    hint: str
    since_ms: int | None = None
    topic: str | None = None


class Problems:
    """Finds problems in samples, and remembers since when each has been there. For one thread."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str, str], int] = {}

    def of(self, sample: Sample) -> list[Problem]:
        found = [
            *_partitions(sample), *_groups(sample), *_brokers(sample), *_transactions(sample),
            *_pipelines(sample),
        ]  # fmt: skip
        since = {}
        for each in found:
            key = (each.severity, each.where.kind, each.where.name)
            each.since_ms = since[key] = self._since.get(key, sample.at_ms)
        self._since = since
        return ordered(found)


def ordered(problems: Collection[Problem]) -> list[Problem]:
    """Put the worst first."""
    return sorted(problems, key=lambda each: (_ORDER.index(each.severity), each.where.name))


def _partitions(sample: Sample) -> list[Problem]:
    found = []
    for name, topic in sorted(sample.state.topics.items()):
        parts = topic.partitions
        offline = [i for i, each in parts.items() if each.leader not in sample.state.brokers]
        behind = [i for i, each in parts.items() if each.is_under_replicated and i not in offline]
        if offline:
            what = f"{_partitions_of(offline)} of {name} cannot be read or written: no leader"
            hint = "start the brokers that hold its replicas"
            found.append(Problem(ERROR, what, Where("topic", name), hint))
        elif behind:
            what = f"{_partitions_of(behind)} of {name}: not all replicas are in sync"
            hint = "a broker is down, or cannot keep up"
            found.append(Problem(WARNING, what, Where("topic", name), hint))
    return found


def _groups(sample: Sample) -> list[Problem]:
    found = []
    for name, lag in sorted(sample.lags.items()):
        listed = sample.groups.get(name)
        if listed is None or not lag.lag or lag.lag_s is None or lag.lag_s < _LATE_S:
            continue
        state = listed.state.lower()
        where = Where("group", name)
        if state == "empty":
            what = f"group {name} has no members and is {lag.lag} messages behind"
            found.append(Problem(INFO, what, where, "start its consumers, or delete the group"))
        else:
            what = f"group {name} is {lag.lag} messages and {round(lag.lag_s)} s behind"
            hint = "check whether the lag grows; if so, add members or make each faster"
            found.append(Problem(WARNING, what, where, hint))
    return found


def _brokers(sample: Sample) -> list[Problem]:
    state = sample.state
    expected = {
        id
        for topic in state.topics.values()
        for part in topic.partitions.values()
        for id in part.replicas
    }
    found = [
        Problem(
            ERROR,
            f"broker {id} is gone: it holds replicas but is not registered",
            Where("broker", str(id)),
            "start it again, or move its replicas with `moldau cluster rebalance`",
        )
        for id in sorted(expected - state.brokers.keys())
    ]
    if state.controller not in state.brokers:
        what = "no broker is the controller: nothing can be created or elected"
        found.append(
            Problem(ERROR, what, Where("cluster", state.cluster_id), "see the brokers' logs")
        )
    return found


def _transactions(sample: Sample) -> list[Problem]:
    found = []
    held = sample.transactions
    if held.unseen:
        what = f"nobody knows whether a transaction holds readers back: {held.unseen}"
        hint = "give the console's own user Describe on all transactional ids, and Read on topics"
        found.append(Problem(INFO, what, Where("cluster", "transactions"), hint))
    for each in held.hanging:
        topic, index = each.place
        what = (
            f"a transaction of producer {each.producer_id} hangs in partition {index} of {topic}: "
            f"no coordinator knows it, and {_messages(held.behind(each.place))} after it are not "
            "shown as committed"
        )
        hint = f"end it with `{abort_command(each)}`"
        found.append(Problem(ERROR, what, Where("topic", topic), hint))
    for late in held.late:
        transaction = late.transaction
        topic, index = late.held.place
        what = (
            f"the transaction of {transaction.id} has been open for {in_words(late.open_s)}: "
            f"{_messages(late.held.behind)} after it in partition {index} of {topic} are not "
            "shown as committed"
        )
        if transaction.state != "Ongoing":
            hint = "it is decided, and its markers are on the way: see whether all brokers run"
        elif transaction.is_of_sink:
            hint = "start the query of the Spark sink again, or run `moldau transactions recover`"
        else:
            hint = "end it in its program, or abort it"
        where = Where("transaction", transaction.id)
        found.append(Problem(WARNING, what, where, hint, topic=topic))
    return found


def _messages(count: int) -> str:
    return f"{count} message{'s' if count != 1 else ''}"


def _pipelines(sample: Sample) -> list[Problem]:
    found = []
    for each in sample.pipelines:
        where = Where("pipeline", each.name)
        error = (each.last_error or {}).get("message") or "no reason given"
        letters = sum(sink.dead_letters or 0 for sink in each.sinks)
        if each.state == "failed":
            hint = "fix the cause, and start the pipeline again"
            found.append(Problem(ERROR, f"pipeline {each.name} has failed: {error}", where, hint))
        elif each.state == "lost":
            what = (
                f"pipeline {each.name} has not reported for a while, although it should be running"
            )
            found.append(Problem(ERROR, what, where, "check whether its process is alive"))
        elif each.state == "restarting":
            what = f"pipeline {each.name} has failed and is restarting: {error}"
            found.append(Problem(WARNING, what, where, "check whether the restart succeeds"))
        elif letters:
            what = f"pipeline {each.name} has set {letters} records aside as dead letters"
            hint = "look at the reasons, fix the cause, and move them back"
            found.append(Problem(INFO, what, where, hint))
    return found


def _partitions_of(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"partition {numbers[0]}"
    shown = ", ".join(map(str, numbers[:5]))
    return f"{len(numbers)} partitions ({shown}{', ...' if len(numbers) > 5 else ''})"
