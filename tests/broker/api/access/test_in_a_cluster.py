"""Rules in a cluster: made anywhere, effective everywhere, and judged by who asked."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from moldau.broker.server import Broker as Server
from moldau.cli import main
from moldau.cli.access_checks import check_access
from moldau.cluster.decisions.assignment import NewTopic
from moldau.console.broker_settings import broker_settings
from moldau.peer.cluster import Cluster
from moldau.peer.view import parse_bootstrap
from moldau.testing import Broker, Ensemble
from moldau.testing.waiting import until
from moldau.wire.acls import CLUSTER_NAME, Operation, Permission, Resource
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.api.access.test_user_scram_credentials import upsertion
from tests.broker.principals import PREFIXED, Person, codes, every, guarded, rule_for
from tests.broker.wire_client import PATIENCE_S, fresh_name, inside, read_records
from tests.cluster.zookeeper.clusters import tell

DENIED = Error.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def brokers(ensemble: Ensemble) -> Iterator[list[Broker]]:
    """The controller first, and another. Between them they are nobody, who may act as a broker."""
    connect = f"{ensemble.hosts}/access-{uuid.uuid4().hex[:8]}"
    made = [
        guarded(zookeeper_connect=connect, node_id=id, default_replication_factor=2)
        for id in range(2)
    ]
    try:
        for broker in made:
            broker.start()
        until(lambda: all(inside(b, lambda s: len(s.state.brokers)) == 2 for b in made))
        controller = until(lambda: inside(made[0], lambda s: s.state.controller_id) + 1) - 1
        ordered = [made[controller], made[1 - controller]]
        with Person(ordered[0], "admin") as admin:
            admin.grant("ANONYMOUS", Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)
        yield ordered
    finally:
        for broker in made:
            broker.stop()


def rules(broker: Broker) -> int:
    return inside(broker, lambda server: len(server.state.access.acls))


def test_rules_made_at_any_broker_count_at_every_broker(brokers: list[Broker]) -> None:
    controller, other = brokers
    topic = fresh_name("shared")
    wanted = {"name": topic, "num_partitions": 1, "replication_factor": 2}
    with Person(other, "admin") as admin, Person(controller, "alice") as alice:
        # The other broker is not the controller: it passes this on, and says who asked.
        assert codes(admin.ask(Api.CREATE_TOPICS, topics=[wanted])) == {0}
        named: dict[str, Any] = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        assert DENIED in codes(alice.ask(Api.METADATA, **named))
        admin.grant("alice", Operation.READ, Resource.TOPIC, topic)
        until(lambda: DENIED not in codes(alice.ask(Api.METADATA, **named)), "the rule")
        with Person(other, "alice") as elsewhere:
            until(lambda: DENIED not in codes(elsewhere.ask(Api.METADATA, **named)), "the rule")
            admin.revoke("alice")
            for each in (alice, elsewhere):
                until(lambda: DENIED in codes(each.ask(Api.METADATA, **named)), "no rule")  # noqa: B023
        # The replicas follow: those who may act as brokers may fetch.
        until(
            lambda: inside(controller, lambda s: len(s.state.topics[topic].partitions[0].isr)) == 2,
            "both replicas in sync",
        )


def test_doctor_asks_a_groups_coordinator_about_it(brokers: list[Broker]) -> None:
    group = fresh_name("group")
    with Person(brokers[0], "admin") as admin:
        admin.grant("ANONYMOUS", Operation.READ, Resource.GROUP, group)
    said: list[str] = []

    def is_told(broker: Broker) -> bool:
        said[:] = [each.detail for each in check_access(broker.bootstrap, None, group)]
        return said == [f"Group {group}: Read granted"]

    for broker in brokers:
        # One of the two is the coordinator; the topic of the groups may have to be created first.
        deadline = time.monotonic() + PATIENCE_S
        while not is_told(broker):
            assert time.monotonic() < deadline, said


def test_who_is_a_super_user_is_known_whichever_broker_is_asked(
    brokers: list[Broker], capsys: pytest.CaptureFixture[str]
) -> None:
    with Person(brokers[0], "admin") as admin:
        for operation in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS):
            admin.grant("ANONYMOUS", operation, Resource.CLUSTER, CLUSTER_NAME)
    until(lambda: rules(brokers[0]) == rules(brokers[1]), "the same rules")
    for broker in brokers:
        words = ("acls", "explain", "User:admin", "Write", "--topic", "t")
        assert main((*words, "--bootstrap", broker.bootstrap)) == 0, capsys.readouterr()
        assert "super.users" in capsys.readouterr().out
        with Cluster(parse_bootstrap(broker.bootstrap)) as cluster:
            assert broker_settings(cluster, ["super.users"]) == {"super.users": "User:admin"}


def test_what_is_passed_on_is_judged_by_who_asked(brokers: list[Broker]) -> None:
    controller, other = brokers
    name = fresh_name("passed-on")
    wanted = {"name": name, "num_partitions": 1, "replication_factor": 1}
    with Person(other, "bob") as bob, Person(controller, "admin") as admin:
        assert codes(bob.ask(Api.CREATE_TOPICS, topics=[wanted])) >= {DENIED}
        rule = every() | {"principal_filter": "User:bob"}
        refused = bob.ask(Api.DELETE_ACLS, filters=[rule])
        assert codes(refused) == {Error.CLUSTER_AUTHORIZATION_FAILED}
        # The controller decides, whether the broker that is asked knows the rule yet or not.
        admin.grant("bob", Operation.CREATE, Resource.TOPIC, name)
        admin.grant("bob", Operation.DESCRIBE_CONFIGS, Resource.TOPIC, name)
        assert codes(bob.ask(Api.CREATE_TOPICS, topics=[wanted])) == {0}


def test_a_topic_is_created_for_who_asks_for_it_at_another_broker(brokers: list[Broker]) -> None:
    controller, other = brokers
    name = fresh_name("auto")
    with Person(other, "carol") as carol, Person(controller, "admin") as admin:
        admin.grant("carol", Operation.DESCRIBE, Resource.TOPIC, "auto", pattern=PREFIXED)
        until(lambda: rules(other) == rules(controller))
        assert DENIED in codes(carol.ask(Api.METADATA, topics=[{"name": name}]))
        assert name not in inside(controller, lambda server: list(server.state.topics))
        admin.grant("carol", Operation.CREATE, Resource.TOPIC, "auto", pattern=PREFIXED)
        until(lambda: codes(carol.ask(Api.METADATA, topics=[{"name": name}])) == {0}, "the topic")


def test_brokers_create_what_they_need_themselves(brokers: list[Broker]) -> None:
    controller, other = brokers
    with Person(other, "dave") as dave, Person(controller, "admin") as admin:
        admin.grant("dave", Operation.READ, Resource.GROUP, "g")
        until(lambda: rules(other) == rules(controller))
        found = dave.ask(Api.FIND_COORDINATOR, coordinator_keys=["g"]).coordinators[0]
        assert found.error_code == 0, found
        # The topic of schemas, dead letters, a quarantine: no client asked for those.
        name = fresh_name("needed")
        assert other._server is not None
        (made,) = other._call(other._server.controller.ensure_topics([NewTopic(name)]))
        assert getattr(made, "name", made) == name
        # Nobody else may have it made, under whatever name.
        own = {"name": "__transaction_state", "num_partitions": 1, "replication_factor": 1}
        assert codes(dave.ask(Api.CREATE_TOPICS, topics=[own])) >= {DENIED}


def test_users_that_do_not_exist_have_the_same_salts_at_every_broker(brokers: list[Broker]) -> None:
    controller, other = brokers
    with Person(other, "admin") as admin:
        answer = admin.ask(Api.ALTER_USER_SCRAM_CREDENTIALS, upsertions=[upsertion("erin")])
        assert codes(answer) == {0}
    until(lambda: all(inside(each, lambda s: len(s.state.access.secret)) == 32 for each in brokers))
    assert inside(controller, lambda s: s.salts()) == inside(other, lambda s: s.salts())


def test_damaged_rules_close_the_resource_to_all_but_super_users(
    brokers: list[Broker], ensemble: Ensemble, caplog: pytest.LogCaptureFixture
) -> None:
    controller, other = brokers
    caplog.set_level(logging.INFO, "moldau.audit")
    topic = fresh_name("damaged")
    connect = inside(other, lambda server: server.settings.zookeeper_connect)
    raw = KazooClient(connect, timeout=20)
    raw.start()
    try:
        with Person(controller, "admin") as admin, Person(other, "alice") as alice:
            wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1}
            assert codes(admin.ask(Api.CREATE_TOPICS, topics=[wanted])) == {0}
            named: dict[str, Any] = {
                "topics": [{"name": topic}],
                "allow_auto_topic_creation": False,
            }
            # Everybody may read all topics, but for what the rules of this one refuse.
            admin.grant("*", Operation.READ, Resource.TOPIC, "*")
            admin.grant("bob", Operation.READ, Resource.TOPIC, topic, permission=Permission.DENY)
            path = f"/access/acl.2.3.{topic}"
            until(lambda: DENIED not in codes(alice.ask(Api.METADATA, **named)), "the rules")
            raw.set(path, raw.get(path)[0][:-10])
            tell(raw, access=[path.rpartition("/")[2]])
            until(lambda: DENIED in codes(alice.ask(Api.METADATA, **named)), "the damage")
            with Person(other, "bob") as bob:
                assert DENIED in codes(bob.ask(Api.METADATA, **named))
            until(lambda: "are damaged and let nobody in" in caplog.text, "the audit")
            assert codes(admin.ask(Api.METADATA, **named)) == {0}
            # The rules cannot be replaced, which would forget what they refused.
            rule = rule_for("carol", topic)
            answer = admin.ask(Api.CREATE_ACLS, creations=[rule])
            assert "is damaged" in str(answer.results[0].error_message)
            # The node without its rules is gone when somebody deletes it.
            raw.delete(path)
            tell(raw, access=[path.rpartition("/")[2]])
            until(lambda: DENIED not in codes(alice.ask(Api.METADATA, **named)), "the repair")
            until(lambda: not inside(controller, is_damaged), "the repair at the other broker")
            admin.revoke("*")
    finally:
        raw.stop()
        raw.close()


def is_damaged(server: Server) -> bool:
    return bool(server.state.access.damaged)


def test_the_audit_is_written_to_a_topic_that_another_broker_leads(ensemble: Ensemble) -> None:
    connect = f"{ensemble.hosts}/audit-{uuid.uuid4().hex[:8]}"
    topic = "refusals"
    made = [
        guarded(
            zookeeper_connect=connect,
            node_id=id,
            audit_topic=topic,
            audit_interval_ms=100,
            super_users="User:admin;User:ANONYMOUS",
        )
        for id in range(2)
    ]
    try:
        for broker in made:
            broker.start()
        until(lambda: all(inside(b, lambda s: len(s.state.brokers)) == 2 for b in made))
        with Person(made[0], "admin") as admin:
            assignment = {"partition_index": 0, "broker_ids": [1]}
            wanted = {"name": topic, "num_partitions": -1, "replication_factor": -1}
            answer = admin.ask(Api.CREATE_TOPICS, topics=[wanted | {"assignments": [assignment]}])
            assert codes(answer) == {0}
        until(lambda: all(inside(b, lambda s: topic in s.state.topics) for b in made), "the topic")
        with Person(made[0], "mallory") as mallory, Person(made[1], "admin") as reader:
            assert DENIED in codes(mallory.ask(Api.METADATA, topics=[{"name": "secret"}]))
            found: list[dict[str, Any]] = []

            def is_there() -> bool:
                partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
                wanted = {
                    "max_wait": 0,
                    "min_bytes": 0,
                    "max_bytes": 1 << 20,
                    "session_epoch": -1,
                    "topics": [{"topic": topic, "partitions": [partition]}],
                }
                data = reader.ask(Api.FETCH, 12, **wanted).responses[0].partitions[0].records
                found[:] = [json.loads(each.value or b"") for each in read_records(data)]
                return any(each["principal"] == "User:mallory" for each in found)

            until(is_there, "the entry")
            (entry,) = (each for each in found if each["principal"] == "User:mallory")
            assert (entry["broker"], entry["names"]) == (0, ["secret"])
    finally:
        for broker in made:
            broker.stop()
