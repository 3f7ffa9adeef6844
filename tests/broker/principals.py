"""Clients that are somebody, and a broker that asks who they are."""

from __future__ import annotations

from typing import Any

from moldau.broker.security.principal import Principal
from moldau.broker.settings.access import STANDARD_AUTHORIZER
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.acls import Operation, PatternType, Permission, Resource
from moldau.wire.apis import Api
from tests.broker.wire_client import Client, inside

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def guarded(**settings: Any) -> Broker:
    """A broker with Kafka's rules, and the super user admin."""
    given = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
    return Broker(given | {key.replace("_", "."): value for key, value in settings.items()})


class Person(Client):
    """A connection of somebody who has proved who they are; that takes no listener that asks."""

    def __init__(self, broker: Broker, name: str) -> None:
        super().__init__(broker)
        port = self.socket.getsockname()[1]

        def known(server: Any) -> bool:
            for connection in server.connections:
                if connection.context.client_port == port:
                    connection.context.become(Principal("User", name))
                    return True
            return False

        until(lambda: inside(broker, known), "the connection")

    def grant(
        self,
        who: str,
        operation: Operation,
        resource: Resource,
        name: str,
        *,
        pattern: PatternType = LITERAL,
        host: str = "*",
        permission: Permission = ALLOW,
    ) -> None:
        """Create one rule."""
        answer = self.ask(
            Api.CREATE_ACLS,
            creations=[
                rule_for(who, name, operation, resource, pattern)
                | {"host": host, "permission_type": permission}
            ],
        )
        assert answer.results[0].error_code == 0, answer

    def revoke(self, who: str | None = None) -> int:
        """Delete all rules about somebody, or all; how many there were."""
        answer = self.ask(Api.DELETE_ACLS, filters=[every(who)])
        assert answer.filter_results[0].error_code == 0, answer
        return len(answer.filter_results[0].matching_acls)


def rule_for(
    who: str,
    name: str,
    operation: Operation = Operation.READ,
    resource: Resource = Resource.TOPIC,
    pattern: PatternType = LITERAL,
) -> dict[str, Any]:
    """A rule to create, by which somebody may do something from anywhere."""
    return {
        "resource_type": resource,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": f"User:{who}",
        "host": "*",
        "operation": operation,
        "permission_type": ALLOW,
    }


def every(who: str | None = None) -> dict[str, Any]:
    """A filter of all rules, or of all about somebody."""
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None if who is None else f"User:{who}",
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


def codes(answer: Any) -> set[int]:
    """All error codes in an answer."""
    found: set[int] = set()
    if isinstance(answer, tuple):
        for each in answer:
            found |= codes(each)
    elif hasattr(answer, "__dataclass_fields__"):
        for name in answer.__dataclass_fields__:
            value = getattr(answer, name)
            if name.endswith("error_code"):
                found.add(int(value))
            else:
                found |= codes(value)
    return found
