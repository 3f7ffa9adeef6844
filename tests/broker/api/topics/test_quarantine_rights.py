"""Rights on a quarantine: who names one has brokers write there, so it takes the right to write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.acls import CLUSTER_NAME, Operation, Resource
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.principals import Person, codes, guarded
from tests.broker.wire_client import fresh_name

DENIED = Error.TOPIC_AUTHORIZATION_FAILED
QUARANTINE = "moldau.schema.validation.quarantine"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with guarded() as broker:
        yield broker


def created(who: Person, name: str, aside: str) -> set[int]:
    configs = [{"name": QUARANTINE, "value": aside}]
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": configs}
    return codes(who.ask(Api.CREATE_TOPICS, topics=[topic]))


def altered(who: Person, name: str, api: Api, **configs: str) -> set[int]:
    how: dict[str, Any] = {"config_operation": 0} if api == Api.INCREMENTAL_ALTER_CONFIGS else {}
    wanted = [{"name": key.replace("_", "."), "value": each} | how for key, each in configs.items()]
    resource = {"resource_type": 2, "resource_name": name, "configs": wanted}
    return codes(who.ask(api, resources=[resource], validate_only=False))


@pytest.mark.parametrize("api", [Api.ALTER_CONFIGS, Api.INCREMENTAL_ALTER_CONFIGS])
def test_a_quarantine_takes_the_rights_to_write_there(broker: Broker, api: Api) -> None:
    mine, payroll = fresh_name("mine"), fresh_name("payroll")
    with Person(broker, "admin") as admin, Person(broker, "alice") as alice:
        admin.create(payroll)
        admin.grant("alice", Operation.ALL, Resource.TOPIC, mine)
        assert created(alice, mine, payroll) >= {DENIED}
        assert created(alice, mine, "") == {0}
        aside = {"moldau_schema_validation_quarantine": payroll}
        assert altered(alice, mine, api, **aside) == {DENIED}
        admin.grant("alice", Operation.WRITE, Resource.TOPIC, payroll)
        assert altered(alice, mine, api, **aside) == {0}
        # What it has already is nobody's news.
        admin.revoke("alice")
        admin.grant("alice", Operation.ALTER_CONFIGS, Resource.TOPIC, mine)
        assert altered(alice, mine, api, retention_ms="1000", **aside) == {0}
        admin.revoke("alice")


def test_a_quarantine_that_is_not_there_takes_the_right_to_create_it(broker: Broker) -> None:
    mine, aside = fresh_name("mine"), fresh_name("aside")
    with Person(broker, "admin") as admin, Person(broker, "bob") as bob:
        admin.grant("bob", Operation.ALL, Resource.TOPIC, mine)
        admin.grant("bob", Operation.WRITE, Resource.TOPIC, aside)
        assert created(bob, mine, aside) >= {DENIED}
        admin.grant("bob", Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)
        until(lambda: created(bob, mine, aside) == {0})
        admin.revoke("bob")


@pytest.mark.parametrize("aside", ["__consumer_offsets", "__transaction_state", "no/name"])
def test_what_only_brokers_write_to_is_nobodys_quarantine(broker: Broker, aside: str) -> None:
    with Person(broker, "admin") as admin:
        assert created(admin, fresh_name("mine"), aside) >= {Error.INVALID_CONFIG}
        own = fresh_name("own")
        assert created(admin, own, own) >= {Error.INVALID_CONFIG}
