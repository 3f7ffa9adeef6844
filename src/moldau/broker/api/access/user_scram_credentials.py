"""DescribeUserScramCredentials and AlterUserScramCredentials: who has which password (KIP-554).

A password never comes here: a client sends it salted and iterated, and what is kept of that can
check a proof but not make one (RFC 5802).
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections import Counter
from functools import partial
from typing import Any

from moldau.broker.api.access.parts import AccessParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_cluster
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation
from moldau.cluster.decisions.access import CredentialChange, alter_scram
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.access import ScramCredential
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.scram import HASHES, LEAST_ITERATIONS, MECHANISMS, MOST_ITERATIONS, NUMBERS


def _refuse_description(request: Request, error: ClusterError) -> Answer:
    failure = {"error_code": error.error}
    return {**failure, "results": [failure for _ in request.body.users or ()]}


@handles(
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS,
    (0, 0),
    on_cluster(Operation.DESCRIBE),
    refused=_refuse_description,
)
def describe(parts: AccessParts, request: Request) -> Answer:
    """Return the mechanisms that users have passwords for; those asked for, or all."""
    known = parts.node.state.access.scram
    counts = Counter(each.name for each in request.body.users or ()) or Counter(sorted(known))
    results: list[dict[str, Any]] = []
    for user, count in counts.items():
        if count > 1:
            message = (
                "Cannot describe SCRAM credentials for the same user twice in a single request: "
                f"{user}"
            )
            results.append(_failure(user, ClusterError(Error.DUPLICATE_RESOURCE, message)))
        elif user not in known:
            message = f"Attempt to describe a user credential that does not exist: {user}"
            results.append(_failure(user, ClusterError(Error.RESOURCE_NOT_FOUND, message)))
        else:
            infos = [
                {"mechanism": NUMBERS[name], "iterations": credential.iterations}
                for name, credential in sorted(known[user].items())
                if name in NUMBERS
            ]
            results.append({"user": user, "credential_infos": infos})
    return {"results": results, "error_message": ""}


def _failure(user: str, error: ClusterError) -> dict[str, Any]:
    return {"user": user, "error_code": error.error, "error_message": error.message}


def _refuse(request: Request, error: ClusterError) -> Answer:
    body = request.body
    users = {each.name for each in (*body.deletions, *body.upsertions)}
    return {"results": [_failure(user, error) for user in sorted(users)]}


@handles(
    Api.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), on_cluster(Operation.ALTER), at_controller=_refuse
)
async def alter(parts: AccessParts, request: Request) -> Answer:
    """Set and delete passwords, at most one of each user."""
    wanted: list[CredentialChange] = []
    refused: dict[str, ClusterError] = {}
    for each in (*request.body.deletions, *request.body.upsertions):
        try:
            wanted.append(_change(each))
        except ClusterError as error:
            refused.setdefault(each.name, error)
    decide = partial(alter_scram, wanted=wanted, refused=refused, secret=os.urandom(32))
    try:
        outcomes = await parts.controller.alter_access(decide)
    except ClusterError as error:
        return _refuse(request, error)
    return {
        "results": [
            {"user": user} if error is None else _failure(user, error)
            for user, error in outcomes.items()
        ]
    }


def _change(wanted: Any) -> CredentialChange:
    user, mechanism = wanted.name, MECHANISMS.get(wanted.mechanism)
    if not user:
        raise ClusterError(Error.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism is None:
        raise ClusterError(Error.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    iterations = getattr(wanted, "iterations", None)
    if iterations is None:
        return CredentialChange(user, mechanism, None)
    if iterations < LEAST_ITERATIONS:
        raise ClusterError(Error.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if iterations > MOST_ITERATIONS:
        raise ClusterError(Error.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return CredentialChange(
        user, mechanism, _credential(mechanism, wanted.salt, iterations, wanted.salted_password)
    )


def _credential(
    mechanism: str, salt: bytes, iterations: int, salted_password: bytes
) -> ScramCredential:
    """Return what is kept of a salted password."""
    function = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", function)
    server_key = hmac.digest(salted_password, b"Server Key", function)
    stored_key = hashlib.new(function, client_key).digest()
    return ScramCredential(bytes(salt), stored_key, server_key, iterations)
