"""Errors of the API: a status, a code for programs, a message and a hint for people."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from moldau.peer.errors import (
    NotAuthenticated,
    OffsetOutOfRange,
    PeerError,
    Refused,
    UnsupportedByBroker,
    name_of,
)
from moldau.records.batch import BatchError
from moldau.schemas.errors import IncompatibleSchema, SchemaError, SchemaNotFound
from moldau.wire.errors import Error

_STATUS = {
    Error.TOPIC_AUTHORIZATION_FAILED: 403,
    Error.GROUP_AUTHORIZATION_FAILED: 403,
    Error.CLUSTER_AUTHORIZATION_FAILED: 403,
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
    Error.UNKNOWN_TOPIC_OR_PARTITION: 404,
    Error.UNKNOWN_TOPIC_ID: 404,
    Error.GROUP_ID_NOT_FOUND: 404,
    Error.TRANSACTIONAL_ID_NOT_FOUND: 404,
    Error.RESOURCE_NOT_FOUND: 404,
    Error.TOPIC_ALREADY_EXISTS: 409,
    Error.NON_EMPTY_GROUP: 409,
    Error.UNKNOWN_MEMBER_ID: 409,
    Error.REASSIGNMENT_IN_PROGRESS: 409,
    Error.GROUP_SUBSCRIBED_TO_TOPIC: 409,
    Error.DUPLICATE_RESOURCE: 409,
    Error.SECURITY_DISABLED: 409,
    Error.INVALID_TOPIC_EXCEPTION: 422,
    Error.INVALID_PARTITIONS: 422,
    Error.INVALID_REPLICATION_FACTOR: 422,
    Error.INVALID_CONFIG: 422,
    Error.INVALID_REQUEST: 422,
    Error.INVALID_GROUP_ID: 422,
    Error.POLICY_VIOLATION: 422,
    Error.INVALID_RECORD: 422,
    Error.MESSAGE_TOO_LARGE: 422,
    Error.RECORD_LIST_TOO_LARGE: 422,
    Error.UNACCEPTABLE_CREDENTIAL: 422,
    Error.OFFSET_OUT_OF_RANGE: 422,
    Error.TOPIC_DELETION_DISABLED: 422,
}
_HINTS = {
    Error.TOPIC_AUTHORIZATION_FAILED: "a super user grants it with `moldau acls add`",
    Error.GROUP_AUTHORIZATION_FAILED: "a super user grants it with `moldau acls add`",
    Error.CLUSTER_AUTHORIZATION_FAILED: "a super user grants it with `moldau acls add --cluster`",
    Error.NON_EMPTY_GROUP: "stop the group's members first",
    Error.UNKNOWN_MEMBER_ID: "stop the group's members first",
    Error.SECURITY_DISABLED: "the brokers run without access control",
}


class ApiError(Exception):
    """What a call is refused with."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint

    def response(self) -> Response:
        body = {"error": {"code": self.code, "message": self.message, "hint": self.hint}}
        return json_response(body, self.status)


def json_response(content: Any, status: int = 200) -> Response:
    body = msgspec.json.encode(content)
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")


def not_found(what: str, hint: str = "") -> ApiError:
    return ApiError(404, "not_found", f"there is no {what}", hint)


def invalid(message: str, hint: str = "") -> ApiError:
    return ApiError(422, "invalid", message, hint)


def of_problem(problem: Exception) -> ApiError | None:
    """Return what a failure of the cluster or the registry means for the call; None for a bug."""
    if isinstance(problem, ApiError):
        return problem
    if isinstance(problem, NotAuthenticated):
        return ApiError(401, "not_signed_in", f"the cluster rejected our login: {problem.reason}")
    if isinstance(problem, OffsetOutOfRange):
        return ApiError(422, "offset_out_of_range", str(problem))
    if isinstance(problem, UnsupportedByBroker):
        return ApiError(
            409, "not_supported", str(problem), "the brokers are too old for this request"
        )
    if isinstance(problem, Refused):
        code = problem.code
        status = _STATUS.get(Error(code), 409) if code in set(Error) else 409
        if problem.is_retriable and status == 409:
            status = 503
        hint = _HINTS.get(Error(code), "") if code in set(Error) else ""
        return ApiError(status, name_of(code).lower(), str(problem), hint)
    if isinstance(problem, BatchError):
        return ApiError(502, "corrupt", f"records cannot be read: {problem}")
    if isinstance(problem, PeerError):
        return ApiError(502, "cluster_unreachable", str(problem), "is a broker running there?")
    if isinstance(problem, SchemaNotFound):
        return ApiError(404, "not_found", str(problem))
    if isinstance(problem, IncompatibleSchema):
        return ApiError(409, "incompatible", str(problem))
    if isinstance(problem, SchemaError):
        status = int(getattr(problem, "status", 502))
        if status in (401, 403):
            status = 403
        elif not 400 <= status < 500:
            status = 502
        return ApiError(status, "registry", str(problem))
    return None


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise what a broker's answer says, unless it is that all is well."""
    if code:
        raise Refused(int(code), what, message or None)
