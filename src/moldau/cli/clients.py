"""librdkafka for commands: connected or refused at once, silent, its errors put into words.

librdkafka retries in the background and talks to stderr. A command wants the opposite: to know soon
whether a broker is there, and one clear message if not. So an address is tried by TCP first, logs
are dropped, and every `KafkaError` becomes a `Failure`.
"""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import typer

from moldau.cli.views.output import Failure
from moldau.client.connection import DEFAULT_BOOTSTRAP, secured, security_properties
from moldau.client.errors import ClientError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient, ClusterMetadata, TopicMetadata

    from moldau.client.admin.admin import Admin

T = TypeVar("T")

CLIENT_ID = "moldau-cli"
REQUEST_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 3.0
# Kafka's errors for a right that is lacking, and what grants it.
_GRANTED_BY = {
    29: "--operation Read|Write|Create --topic TOPIC",
    30: "--operation Read --group GROUP",
    31: "--operation OPERATION --cluster",
    53: "--operation Write --transactional-id ID",
}
_NOBODY_THERE = "start one with `moldau broker`, or give another address with --bootstrap HOST:PORT"
_NOT_TRUSTED = (
    "compare `ssl.*` in the client's config with the listener: which authorities each side "
    "trusts, and for which hosts and how long the certificates are valid"
)
_NOT_KNOWN = (
    "check the name, the password and `sasl.mechanism` in the client's config; a super user can "
    "see users with `moldau users list` and set passwords with `moldau users password`"
)
ASK_DOCTOR = "`moldau doctor` checks the connection step by step"


def silent_logger() -> logging.Logger:
    """Drop what librdkafka would print on stderr; what matters is also reported as an error."""
    logger = logging.Logger("librdkafka")
    logger.addHandler(logging.NullHandler())
    return logger


def parse_addresses(bootstrap: str) -> list[tuple[str, int]]:
    """Return the (host, port) pairs of `HOST:PORT[,HOST:PORT...]`; wrong usage if it is not
    that."""
    found = []
    for item in bootstrap.split(","):
        host, colon, port = item.strip().rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise typer.BadParameter(
                f"{item.strip()!r} is not HOST:PORT, for example {DEFAULT_BOOTSTRAP}",
                param_hint="--bootstrap",
            )
        found.append((host.strip("[]"), int(port)))
    return found


class Trouble(NamedTuple):
    """Why a connection cannot be made, and what to do about it."""

    reason: str
    advice: str = _NOBODY_THERE
    # Whether somebody answered, but one side did not accept the other.
    is_refusal: bool = False


def connection_problem(host: str, port: int, timeout: float = CONNECT_TIMEOUT_S) -> Trouble | None:
    """Return why a connection cannot be made, or None when it can.

    Where the client's config asks for security, that is part of it.
    """
    try:
        if security_properties():
            return _security_problem(host, port, timeout)
        socket.create_connection((host, port), timeout=timeout).close()
    except socket.gaierror:
        return Trouble(f"the host name {host} is unknown")
    except TimeoutError:
        return Trouble(f"no answer within {timeout:g} s")
    except OSError as problem:
        return Trouble((problem.strerror or str(problem)).lower())
    return None


def _security_problem(host: str, port: int, timeout: float) -> Trouble | None:
    from moldau.peer.connection import Connection
    from moldau.peer.errors import ConnectionLost, NotAuthenticated
    from moldau.security.client_config import client_security

    try:
        with Connection(host, port, CLIENT_ID, timeout_s=timeout, security=client_security()):
            return None
    except NotAuthenticated as problem:
        is_tls = "TLS" in problem.reason or problem.reason.startswith("ssl.")
        return Trouble(problem.reason, _NOT_TRUSTED if is_tls else _NOT_KNOWN, is_refusal=True)
    except ConnectionLost as problem:
        return Trouble(problem.reason)


def require_broker(bootstrap: str, timeout: float = CONNECT_TIMEOUT_S) -> None:
    """Failure unless at least one of the addresses takes a connection."""
    problems = []
    refusal = None
    for host, port in parse_addresses(bootstrap):
        problem = connection_problem(host, port, timeout)
        if problem is None:
            return
        problems.append(f"{host}:{port} ({problem.reason})")
        refusal = refusal or (problem if problem.is_refusal else None)
    if refusal is not None:
        raise Failure(f"no broker accepted our login: {', '.join(problems)}", refusal.advice)
    raise Failure(f"no broker can be reached at {', '.join(problems)}", _NOBODY_THERE)


def _config(bootstrap: str, **more: Any) -> dict[str, Any]:
    """librdkafka's configuration; further settings have underscores for dots."""
    return secured(
        {
            "bootstrap.servers": bootstrap,
            "client.id": CLIENT_ID,
            "socket.connection.setup.timeout.ms": 5000,
            "reconnect.backoff.max.ms": 1000,
            "error_cb": lambda error: None,
            **security_properties(),
            **{key.replace("_", "."): value for key, value in more.items()},
        }
    )


def connect_admin(bootstrap: str, timeout: float = CONNECT_TIMEOUT_S) -> AdminClient:
    require_broker(bootstrap, timeout)
    from confluent_kafka.admin import AdminClient

    return AdminClient(_config(bootstrap), logger=silent_logger())


def connect_client_admin(bootstrap: str, timeout: float = REQUEST_TIMEOUT_S) -> Admin:
    """Our own client's admin; its errors are for `failures` as well."""
    require_broker(bootstrap, min(timeout, CONNECT_TIMEOUT_S))
    from moldau.client.admin.admin import Admin

    return Admin(timeout=timeout, settings=_config(bootstrap), logger=silent_logger())


def connect_producer(bootstrap: str, **config: Any) -> Producer:
    """Return a producer that places keys as Java's client does and, unless told otherwise, reports
    only failed deliveries."""
    require_broker(bootstrap)
    from confluent_kafka import KafkaException, Producer

    defaults = {"partitioner": "murmur2_random", "delivery_report_only_error": True}
    settings = _config(bootstrap, **defaults | config)
    try:
        return Producer(settings, logger=silent_logger())
    except KafkaException as problem:
        raise failure_of(problem.args[0]) from None


def connect_consumer(
    bootstrap: str, on_error: Callable[[KafkaError], None] | None = None, **config: Any
) -> Consumer:
    """Return a consumer that commits nothing by itself and, unless told otherwise, is in no
    group."""
    require_broker(bootstrap)
    from confluent_kafka import Consumer, KafkaException

    defaults = {
        "group_id": "moldau-cli",
        "enable_auto_commit": False,
        "enable_auto_offset_store": False,
        "auto_offset_reset": "error",
        # By default a consumer whose queue was full pauses for a second, however soon it is empty.
        "fetch_queue_backoff_ms": 5,
        # A partition that joins late waits for the fetch under way, which may have found nothing.
        "fetch_wait_max_ms": 100,
    }
    settings = _config(bootstrap, **defaults | config)
    if on_error is not None:
        settings["error_cb"] = on_error
    try:
        return Consumer(settings, logger=silent_logger())
    except KafkaException as problem:
        raise failure_of(problem.args[0]) from None


def with_fatal_errors(work: Callable[[], T]) -> T:
    """Do what may meet a fatal error of librdkafka, which comes as KafkaException.

    confluent-kafka raises those as they are, though they are no exceptions, and no `except` but
    the barest catches them; or it loses them on the way.
    """
    from confluent_kafka import KafkaError, KafkaException

    try:
        return work()
    except SystemError:
        raise KafkaException(KafkaError(KafkaError._FATAL)) from None
    except:
        fatal: object = sys.exc_info()[1]
        if isinstance(fatal, KafkaError):
            raise KafkaException(fatal) from None
        raise


@contextmanager
def failures() -> Iterator[None]:
    """Turn librdkafka's and our client's exceptions inside the block into `Failure`."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as problem:
        raise failure_of(problem.args[0]) from None
    except ClientError as problem:
        # It names what it is about.
        advice = ASK_DOCTOR if problem.error is None else failure_of(problem.error).advice
        raise Failure(str(problem), advice) from None


def failure_of(error: KafkaError, topic: str = "") -> Failure:
    """Put a Kafka error into words for the person at the terminal."""
    from confluent_kafka import KafkaError

    subject = f"topic {topic}: " if topic else ""
    code = error.code()
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return Failure(
            f"topic {topic or 'as named'} does not exist",
            "see `moldau topics list`, or create it with `moldau topics create`",
        )
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return Failure(f"topic {topic} already exists", "to ignore that, add --if-not-exists")
    if code in (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
    ):
        return Failure(
            f"{subject}the broker did not answer in time ({error.str()})",
            ASK_DOCTOR,
        )
    if code in _GRANTED_BY:
        return Failure(f"{subject}{error.str()} ({error.name()})", grant_advice(code, topic))
    if code == KafkaError.GROUP_ID_NOT_FOUND:
        return Failure("there is no such group", "see `moldau groups list`")
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return Failure(
            f"{subject}the message is too large",
            "raise the limit with `moldau topics alter TOPIC --config max.message.bytes=N`",
        )
    return Failure(f"{subject}{error.str()} ({error.name()})")


def grant_advice(code: int, topic: str = "") -> str:
    """Return how to get the right whose lack the error says; empty if it says something else."""
    if code not in _GRANTED_BY:
        return ""
    from moldau.security.client_config import client_user

    who = f"User:{client_user() or 'YOU'}"
    what = _GRANTED_BY[code].replace("TOPIC", topic or "TOPIC")
    return (
        f"a super user grants it with `moldau acls add --allow {who} {what}`; "
        f"`moldau acls explain {who} OPERATION ...` says which rule decides"
    )


def cluster_metadata(
    admin: AdminClient | Producer | Consumer, timeout: float = REQUEST_TIMEOUT_S
) -> ClusterMetadata:
    with failures():
        return admin.list_topics(timeout=timeout)


def topic_metadata(
    client: AdminClient | Producer | Consumer, topic: str, timeout: float = REQUEST_TIMEOUT_S
) -> TopicMetadata:
    """Return the topic with its partitions; Failure when it does not exist.

    Asks for all topics, because to ask for one by name may create it.
    """
    from confluent_kafka import KafkaError

    found: TopicMetadata | None = cluster_metadata(client, timeout).topics.get(topic)
    if found is None:
        raise failure_of(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), topic)
    if found.error is not None:
        raise failure_of(found.error, topic)
    return found


def topic_names(bootstrap: str, timeout: float = REQUEST_TIMEOUT_S) -> list[str]:
    admin = connect_admin(bootstrap, timeout=min(timeout, CONNECT_TIMEOUT_S))
    return sorted(cluster_metadata(admin, timeout).topics)
