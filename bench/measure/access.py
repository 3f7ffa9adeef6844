"""The cost of access control: a broker with ACLs and quotas beside one without."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from bench.measure.metrics import small_requests_cost
from bench.measure.pairs import as_it_is, costs_in_turns
from moldau.bench.broker import BrokerUnderTest
from moldau.bench.results import Row, Target, figure
from moldau.bench.workbench import Workbench
from moldau.peer.connection import Connection
from moldau.wire.acls import Operation, PatternType, Permission, Resource
from moldau.wire.apis import Api

_PIPELINED = 100
_MOST_PERCENT = 5.0
_LOCKED = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # For the rules below to be made; those count from then on.
    "allow.everyone.if.no.acl.found=true",
)
_LIMITS = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}


def measure_access(bench: Workbench) -> Iterator[Row]:
    off, on = costs_in_turns(
        bench,
        "access",
        ((), _LOCKED),
        lambda bench, broker: small_requests_cost(bench, broker, _PIPELINED),
        preparations=(as_it_is, _lock),
    )
    more = 100 * (median(on) / median(off) - 1)
    yield Row(
        "access",
        f"Produce of 100 B, pipelined, {_PIPELINED}",
        (
            figure("broker CPU per request, open", "us", off),
            figure("broker CPU per request, ACLs and quotas", "us", on),
            figure("more with ACLs and quotas", "%", [more], Target(_MOST_PERCENT)),
        ),
    )


def _lock(broker: BrokerUnderTest) -> None:
    """Grant what the load needs by rules, and set limits that nobody reaches."""
    connection = Connection(broker.host, broker.port, "bench")
    try:
        rules = [
            {
                "resource_type": Resource.TOPIC,
                "resource_name": "*",
                "resource_pattern_type": PatternType.LITERAL,
                "principal": who,
                "host": "*",
                "operation": operation,
                "permission_type": permission,
            }
            for who, operation, permission in (
                ("User:ANONYMOUS", Operation.ALL, Permission.ALLOW),
                ("User:mallory", Operation.ALL, Permission.DENY),
            )
        ]
        connection.ask(Api.CREATE_ACLS, {"creations": rules})
        entry = {
            "entity": [{"entity_type": "user", "entity_name": None}],
            "ops": [
                {"key": key, "value": value, "remove": False} for key, value in _LIMITS.items()
            ],
        }
        connection.ask(Api.ALTER_CLIENT_QUOTAS, {"entries": [entry], "validate_only": False})
    finally:
        connection.close()
