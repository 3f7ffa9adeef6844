"""Requests by hand: what librdkafka's admin lacks, or says too little about when it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from moldau.cli.clients import (
    ASK_DOCTOR,
    CLIENT_ID,
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    grant_advice,
    parse_addresses,
    require_broker,
)
from moldau.cli.views.output import Failure
from moldau.peer.cluster import Cluster
from moldau.peer.connection import Connection
from moldau.peer.errors import PeerError, Refused, name_of
from moldau.peer.retries import PeerSettings
from moldau.security.client import ClientSecurity
from moldau.security.client_config import client_security, client_user
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# A broker that has just died is replaced well within it.
RETRY_S = 30.0
_ADVICE = {
    Error.CLUSTER_AUTHORIZATION_FAILED: "run it as a super user, or have a super user run `moldau "
    "acls add --allow {who} --operation {operation} "
    "--cluster`",
    Error.SECURITY_DISABLED: "start the brokers with --secure, or with authorizer.class.name set",
}


def ask(bootstrap: str, api: Api, values: dict[str, Any], at_most: int | None = None) -> Any:
    """Return the answer of the first broker that can be reached, in a version of at most that;
    Failure if none can."""
    require_broker(bootstrap)
    problem = ""
    for host, port in parse_addresses(bootstrap):
        try:
            with Connection(
                host, port, CLIENT_ID, timeout_s=REQUEST_TIMEOUT_S, security=client_security()
            ) as connection:
                return connection.ask(api, values, at_most)
        except PeerError as error:
            problem = str(error)
    raise Failure(f"no broker answered: {problem}", "`moldau doctor` checks the connection")


@contextmanager
def connect_cluster(
    bootstrap: str, retry_s: float = RETRY_S, security: ClientSecurity | None = None
) -> Iterator[Cluster]:
    """Yield a cluster to ask; what it refuses inside the block becomes a Failure.

    Without `security` the client's config says how to get in.
    """
    require_broker(bootstrap)
    settings = PeerSettings(
        client_id=CLIENT_ID,
        security=security or client_security(),
        connect_timeout_s=CONNECT_TIMEOUT_S,
        request_timeout_s=REQUEST_TIMEOUT_S,
        retry_within_s=retry_s,
    )
    try:
        with Cluster(parse_addresses(bootstrap), settings) as cluster:
            yield cluster
    except Refused as problem:
        raise Failure(str(problem), grant_advice(problem.code)) from None
    except PeerError as problem:
        raise Failure(str(problem), ASK_DOCTOR) from None


def check(answer: Any, operation: str = "Alter") -> None:
    """Raise Failure for the error of an answer, or of one part of it."""
    code = int(answer.error_code)
    if code:
        message = answer.error_message or name_of(code)
        advice = _ADVICE.get(Error(code), "") if code in set(Error) else ""
        who = f"User:{client_user() or 'YOU'}"
        raise Failure(message, advice.format(who=who, operation=operation))
