"""The authorizer: the one who is asked whether somebody may do something."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from moldau.broker.security.principal import Principal


class Operation(IntEnum):
    """The operations that need a right, by Kafka's numbers."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Resource(IntEnum):
    """The kinds of resources that operations concern, by Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


# The name of the cluster resource; there is only one.
CLUSTER_NAME = "kafka-cluster"


class Authorizer(Protocol):
    """Decides by who asks and from which host. Event loop only."""

    def allows(
        self, principal: Principal, host: str, operation: Operation, resource: Resource, name: str
    ) -> bool: ...
