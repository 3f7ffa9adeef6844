"""Quotas: how much users, clients and addresses may do."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from moldau.console.call import Call
from moldau.console.endpoint import Done, endpoint
from moldau.console.errors import check
from moldau.wire.apis import Api

Name = Annotated[str, Meta(min_length=1, max_length=255)]


class Quota(msgspec.Struct):
    """The limits of a user, a client id, both, or an address; null stands for all others."""

    entity: dict[str, str | None]
    limits: dict[str, float]


class QuotaList(msgspec.Struct):
    quotas: list[Quota]


class QuotaChange(msgspec.Struct):
    """Limits of a `user`, a `client-id`, both, or an `ip`. A limit that is null is removed."""

    entity: Annotated[dict[Name, Name | None], Meta(min_length=1, max_length=2)]
    limits: Annotated[
        dict[Name, Annotated[float, Meta(gt=0)] | None], Meta(min_length=1, max_length=20)
    ]


@endpoint("GET", "api/security/quotas")
def list_quotas(call: Call) -> QuotaList:
    """List all limits of users, clients and addresses."""
    answer = call.ask(Api.DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False})
    check(answer.error_code, "quotas", answer.error_message)
    return QuotaList(
        [
            Quota(
                {str(each.entity_type): each.entity_name for each in entry.entity},
                {str(each.key): float(each.value) for each in entry.values},
            )
            for entry in answer.entries or ()
        ]
    )


@endpoint("PATCH", "api/security/quotas")
def change_quotas(call: Call, asked: QuotaChange) -> Done:
    """Set and remove limits of a user, a client or an address; the others stay as they are."""
    entry = {
        "entity": [
            {"entity_type": kind, "entity_name": name} for kind, name in asked.entity.items()
        ],
        "ops": [
            {"key": key, "value": limit or 0.0, "remove": limit is None}
            for key, limit in asked.limits.items()
        ],
    }
    answer = call.ask(Api.ALTER_CLIENT_QUOTAS, {"entries": [entry], "validate_only": False})
    (told,) = answer.entries
    check(told.error_code, "the quota", told.error_message)
    call.note("changed quotas", entity=asked.entity, limits=asked.limits)
    return Done()
