"""Rights of the registry's API. The one place where they are asked for.

Who may Describe the cluster may read everything, and who may Alter it may change everything. For
others a subject belongs to a topic, as with Confluent's authorizer by topics: `orders-value` and
`orders-key` to `orders`, and any other subject to the topic of its own name.

    to                                          takes, on the topic
    read a subject, look up or check a schema   Describe (which Read and Write grant)
    register a schema                           Write
    delete a subject or a version               Delete
    change a subject's config or mode           AlterConfigs
    make a subject an alias of another          AlterConfigs, of both
    read a schema by its id                     Describe, of any subject that has it
    refer to a schema of another subject        Describe, of that subject
    list the subjects                           Describe: those of other topics are left out

Everything else takes rights on the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from starlette.requests import Request

from moldau.broker.security.authorizer import Operation as Right
from moldau.broker.security.authorizer import Resource
from moldau.http.host import Host
from moldau.http.registry.call import Operation
from moldau.http.registry.schemas import context_of_id, is_id
from moldau.schemas.registry.names import named, unqualified
from moldau.schemas.registry.state import RegistryState, Version
from moldau.wire.acls import in_words

# What a sender is told of.
_TOLD = (Right.WRITE, Right.DELETE, Right.ALTER_CONFIGS)
_OF_SUBJECTS = ("subjects", "compatibility", "config", "mode")
_VERSIONS = ["subjects", "*", "versions"]
_SUFFIXES = ("-key", "-value")


class SubjectRights:
    """What the sender of a request may do, by the topics that subjects belong to."""

    def __init__(self, host: Host, request: Request) -> None:
        self._host = host
        self._request = request

    def may_see(self, subject: str) -> bool:
        return self._may(Right.DESCRIBE, subject, quietly=True)

    def may_alter(self, subject: str) -> bool:
        return self._may(Right.ALTER_CONFIGS, subject, quietly=False)

    def _may(self, right: Right, subject: str, *, quietly: bool) -> bool:
        name = topic_of(subject)
        return self._host.may(self._request, right, Resource.TOPIC, name, quietly=quietly)


def permit(
    host: Host,
    request: Request,
    operation: Operation,
    args: Sequence[str],
    state: RegistryState,
    context: str,
    *,
    tells: bool,
) -> SubjectRights | None:
    """Refuse the request with 403 unless its sender may do this; return what it may do with each
    subject, None for everything. The audit is told of an admission if this call `tells`."""
    of_cluster = Right.ALTER if operation.is_write else Right.DESCRIBE
    if host.may(request, of_cluster, quietly=True):
        host.require(request, of_cluster, tells=tells)
        return None
    rights = SubjectRights(host, request)
    first = operation.parts[0]
    if operation.parts == ["subjects"]:
        return rights
    if first in _OF_SUBJECTS and args and unqualified(args[0]):
        _permit_subject(host, request, operation, named(context, args[0]), state, tells)
        return rights
    if (operation.parts[:2] == ["schemas", "ids"] and len(operation.parts) == 3) or (
        operation.parts[-1] == "schema" and first == "schemas"
    ):
        subject = request.query_params.get("subject")
        known = _holders(state, args[0], context, named(context, subject) if subject else None)
        # One that nobody has here is not found, or the leader decides.
        if not known or any(rights.may_see(each.subject) for each in known):
            return rights
    host.require(request, of_cluster, tells=tells)
    return rights


def operations_of(
    host: Host,
    request: Request,
    operation: Operation,
    args: Sequence[str],
    context: str,
    state: RegistryState,
) -> str | None:
    """Return what the sender may do with the subject that it reads, or with any if it lists them,
    in Kafka's words; None where that is not told."""
    if operation.method != "GET" or operation.parts not in (["subjects"], _VERSIONS):
        return None
    if host.may(request, Right.ALTER, quietly=True):
        return _in_words(_TOLD)
    if not args:
        return _in_words([each for each in _TOLD if host.may_any(request, each, Resource.TOPIC)])
    topics = _topics_of(named(context, args[0]), state)
    return _in_words(
        right
        for right in _TOLD
        if all(host.may(request, right, Resource.TOPIC, topic, quietly=True) for topic in topics)
    )


def _in_words(rights: Iterable[Right]) -> str:
    return ",".join(map(in_words, rights))


def _topics_of(subject: str, state: RegistryState) -> list[str]:
    """Return the topics whose rights count for a subject: its own, and that of its alias."""
    config = state.configs.get(subject)
    # Or a name of one's own would open another's subject.
    more = [topic_of(config.alias)] if config is not None and config.alias else []
    return [topic_of(subject), *more]


def _holders(
    state: RegistryState, given: str, context: str, subject: str | None
) -> Sequence[Version]:
    """Return the versions that have the schema which an id stands for.

    A subject only says in which context to look: who may see it may not see whatever has an id.
    """
    found = context_of_id(state, int(given), context, subject) if is_id(given) else None
    return [] if found is None else state.holders(found, int(given))


def topic_of(subject: str) -> str:
    """Return the topic whose rights count for a subject, in whatever context."""
    name = unqualified(subject)
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return name


def _permit_subject(
    host: Host,
    request: Request,
    operation: Operation,
    subject: str,
    state: RegistryState,
    tells: bool,
) -> None:
    right, kind = _right(operation), Resource.TOPIC
    for topic in _topics_of(subject, state):
        host.require(request, right, kind, topic, tells=tells)


def _right(operation: Operation) -> Right:
    if not operation.is_write:
        return Right.DESCRIBE
    if operation.parts[0] in ("config", "mode"):
        return Right.ALTER_CONFIGS
    return Right.DELETE if operation.method == "DELETE" else Right.WRITE
