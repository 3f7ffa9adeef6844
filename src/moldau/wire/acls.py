"""Access control in the protocol: operations, resources, patterns and permissions, by number."""

from __future__ import annotations

from enum import IntEnum


class Operation(IntEnum):
    """What somebody may do."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Resource(IntEnum):
    """The kinds of resources that operations concern."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a pattern names resources. ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Whether a rule grants or refuses."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


# The name of the cluster resource; there is only one.
CLUSTER_NAME = "kafka-cluster"
# Every resource of a kind, as a literal pattern; every principal; every host.
WILDCARD = "*"
ANYBODY = "User:*"

# The operations that resources of each kind know.
SUPPORTED: dict[Resource, tuple[Operation, ...]] = {
    Resource.TOPIC: (
        *(Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER),
        *(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    ),
    Resource.GROUP: (
        *(Operation.READ, Operation.DELETE, Operation.DESCRIBE),
        *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    ),
    Resource.CLUSTER: (
        *(Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION),
        *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE),
    ),
    Resource.TRANSACTIONAL_ID: (
        *(Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ),
    Resource.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    Resource.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}


def in_words(number: IntEnum) -> str:
    """Return a name as Kafka's tools write it: DescribeConfigs, TransactionalId, Allow."""
    return "".join(word.capitalize() for word in number.name.split("_"))
