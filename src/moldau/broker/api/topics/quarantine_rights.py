"""The right to a quarantine: a setting of a topic that has brokers write to another one.

Brokers may write anywhere. Who names a quarantine has them write records of their choice there. So
that takes the rights that they would need themselves: Write on it, and Create if there is none yet.
What only brokers write to can be nobody's quarantine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.internal_topics import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from moldau.cluster.state.state import ClusterState
from moldau.cluster.state.topics import InvalidTopicName, check_topic_name
from moldau.wire.errors import Error

Configs = dict[str, str]

QUARANTINE = "moldau.schema.validation.quarantine"


def check_quarantine(
    request: Request,
    state: ClusterState,
    topic: str,
    configs: Mapping[str, str | None],
    current: Mapping[str, str],
) -> None:
    """Raise ClusterError unless who asks may give a topic the quarantine that these settings name;
    the one that it has stays."""
    wanted = configs.get(QUARANTINE)
    if not wanted or wanted == current.get(QUARANTINE):
        return
    problem = _problem(wanted, topic)
    if problem is not None:
        raise ClusterError(Error.INVALID_CONFIG, f"{QUARANTINE}: {problem}")
    if not request.may_on_topic(Operation.WRITE, wanted):
        raise _denied(wanted, "Write")
    is_new = wanted not in state.topics
    if is_new and not (
        request.may_on_cluster(Operation.CREATE, quietly=True)
        or request.may_on_topic(Operation.CREATE, wanted)
    ):
        raise _denied(wanted, "Create")


def within_rights(
    request: Request, state: ClusterState, topic: str, change: Callable[[Configs], Configs]
) -> Callable[[Configs], Configs]:
    """Return a change of settings that raises ClusterError unless who asks may make it."""

    def permitted(current: Configs) -> Configs:
        configs = change(current)
        check_quarantine(request, state, topic, configs, current)
        return configs

    return permitted


def _problem(wanted: str, topic: str) -> str | None:
    if wanted in INTERNAL_TOPICS or wanted == CLUSTER_METADATA_TOPIC:
        return f"{wanted} is an internal topic"
    if wanted == topic:
        return "a topic cannot be its own quarantine"
    try:
        check_topic_name(wanted)
    except InvalidTopicName as problem:
        return str(problem)
    return None


def _denied(wanted: str, operation: str) -> ClusterError:
    return ClusterError(
        Error.TOPIC_AUTHORIZATION_FAILED,
        f"Topic authorization failed: {QUARANTINE}={wanted} requires {operation} on that topic.",
    )
