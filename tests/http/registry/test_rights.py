"""Rights of the registry: on the cluster, or on the topic that a subject belongs to."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from moldau.broker.server import Broker as Server
from moldau.cluster.state.access import Acl, AclsChanged, ResourcePattern
from moldau.http.registry.rights import topic_of
from moldau.schemas.worker.process import WorkerProcess
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.acls import Operation, PatternType, Permission, Resource
from tests.broker.wire_client import inside
from tests.certificates import authority, client_context, of_user, tls_settings
from tests.http.test_access import AUTHORIZER, MODULE

ROOT = {"super.users": "User:root;User:ANONYMOUS"}
USERS = 'user_root="of root" user_alice="of alice" user_mallory="of mallory"'
PLAIN = f"{MODULE}.plain.PlainLoginModule"
LOGINS = {
    "http.listen": "127.0.0.1:0",
    "http.security.protocol": "SASL_PLAINTEXT",
    "listener.name.http.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.http.plain.sasl.jaas.config": f"{PLAIN} required {USERS};",
    "connection.failed.authentication.delay.ms": "0",
}
SCHEMA = {"schema": '"string"'}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(LOGINS | AUTHORIZER | ROOT) as broker:
        yield broker


class Person:
    """Somebody who asks the registry."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._url = broker.http_url
        self._auth = (name, f"of {name}")

    def ask(self, method: str, path: str, body: Any = None) -> int:
        return self.answer(method, path, body).status_code

    def answer(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return httpx.request(method, self._url + path, json=body, auth=self._auth, timeout=60)


def grant(
    broker: Broker, who: str, topic: str, *operations: Operation, kind: Resource = Resource.TOPIC
) -> None:
    acls = tuple(Acl(f"User:{who}", "*", each, Permission.ALLOW) for each in operations)
    assert broker._server is not None
    pattern = ResourcePattern(kind, topic, PatternType.LITERAL)
    broker._call(broker._server.store.commit([AclsChanged(pattern, acls)]))


def test_subjects_belong_to_topics() -> None:
    names = {
        "orders-value": "orders",
        "orders-key": "orders",
        ":.other:orders-value": "orders",
        "com.acme.Order": "com.acme.Order",
        "-value": "-value",
        "orders-value-value": "orders-value",
    }
    assert {name: topic_of(name) for name in names} == names


def test_who_has_no_right_gets_nothing_and_is_told_which_is_lacking(broker: Broker) -> None:
    root, mallory = Person(broker, "root"), Person(broker, "mallory")
    made = root.answer("POST", "/subjects/secret-value/versions", SCHEMA)
    assert made.status_code == 200
    for method, path in (
        ("GET", "/subjects/secret-value/versions"),
        ("GET", "/subjects/secret-value/versions/1"),
        ("POST", "/subjects/secret-value"),
        ("POST", "/subjects/secret-value/versions"),
        ("DELETE", "/subjects/secret-value"),
        ("POST", "/compatibility/subjects/secret-value/versions/latest"),
        ("PUT", "/config/secret-value"),
        ("GET", "/mode/secret-value"),
        ("PUT", "/config"),
        ("GET", "/schemas"),
        ("GET", f"/schemas/ids/{made.json()['id']}"),
        ("GET", f"/schemas/ids/{made.json()['id']}/schema"),
        ("GET", f"/schemas/ids/{made.json()['id']}/subjects"),
        ("GET", "/contexts"),
    ):
        answer = mallory.answer(method, path, SCHEMA if method in ("POST", "PUT") else None)
        assert answer.status_code == 403, (method, path)
        assert "User:mallory lacks" in answer.json()["message"]
    assert mallory.answer("GET", "/subjects").json() == []
    assert "secret-value" in root.answer("GET", "/subjects").json()


def test_the_audit_counts_each_request_once() -> None:
    settings = LOGINS | AUTHORIZER | ROOT | {"audit.admissions.enable": "true"}
    with Broker(settings) as broker:
        alice, mallory = Person(broker, "alice"), Person(broker, "mallory")
        grant(broker, "alice", "orders", Operation.WRITE)
        told: list[dict[str, Any]] = []

        def heard(server: Server) -> None:
            audit = server.guard.audit
            assert audit is not None
            audit.publish = told.extend
            audit.tell()

        inside(broker, heard)
        told.clear()
        assert alice.ask("POST", "/subjects/orders-value/versions", SCHEMA) == 200
        assert mallory.ask("POST", "/subjects/orders-value/versions", SCHEMA) == 403
        assert Person(broker, "root").ask("DELETE", "/subjects/orders-value") == 200
        inside(broker, heard)
    by_http = [each for each in told if each["api"] == "HTTP"]
    assert [
        (each["decision"], each["principal"], each["operation"], each["names"], each["count"])
        for each in sorted(by_http, key=lambda each: each["principal"])
    ] == [
        ("allowed", "User:alice", "Login", ["HTTP"], 1),
        ("allowed", "User:alice", "Write", ["orders"], 1),
        ("allowed", "User:mallory", "Login", ["HTTP"], 1),
        ("denied", "User:mallory", "Write", ["orders"], 1),
        ("allowed", "User:root", "Login", ["HTTP"], 1),
        ("allowed", "User:root", "Alter", ["kafka-cluster"], 1),
    ]


def test_rights_on_a_topic_are_rights_on_its_subjects(broker: Broker) -> None:
    alice, root = Person(broker, "alice"), Person(broker, "root")
    root.ask("POST", "/subjects/others-value/versions", {"schema": '"bytes"'})
    grant(broker, "alice", "orders", Operation.WRITE)
    until(lambda: alice.ask("POST", "/subjects/orders-value/versions", SCHEMA) == 200)
    found = alice.answer("GET", "/subjects/orders-value/versions/1")
    assert found.status_code == 200
    assert alice.ask("GET", f"/schemas/ids/{found.json()['id']}") == 200
    assert alice.answer("GET", "/subjects").json() == ["orders-value"]
    assert alice.ask("POST", "/subjects/orders-key", SCHEMA) == 404
    assert alice.ask("DELETE", "/subjects/orders-value") == 403
    assert alice.ask("PUT", "/config/orders-value", {"compatibility": "NONE"}) == 403
    assert alice.ask("POST", "/subjects/others-value/versions", SCHEMA) == 403
    grant(broker, "alice", "orders", Operation.DELETE, Operation.ALTER_CONFIGS)
    until(lambda: alice.ask("PUT", "/config/orders-value", {"compatibility": "NONE"}) == 200)
    # A name of one's own does not open what belongs to others.
    aliased = {"alias": "others-value"}
    assert alice.ask("PUT", "/config/orders-key", aliased) == 403
    assert root.ask("PUT", "/config/orders-key", aliased) == 200
    assert alice.ask("GET", "/subjects/orders-key/versions") == 403
    assert alice.ask("DELETE", "/subjects/orders-value") == 200
    grant(broker, "alice", "orders")


def test_no_detour_leads_to_the_schemas_of_others(broker: Broker) -> None:
    alice, root = Person(broker, "alice"), Person(broker, "root")
    hidden = '{"type":"record","name":"Hidden","fields":[{"name":"hidden_field","type":"int"}]}'
    made = root.answer("POST", "/subjects/hidden-value/versions", {"schema": hidden}).json()
    grant(broker, "alice", "mine", Operation.WRITE, Operation.ALTER_CONFIGS)
    own = {"schema": '"long"'}
    until(lambda: alice.ask("POST", "/subjects/mine-value/versions", own) == 200)
    # A subject of one's own beside the id of another's schema.
    for path in (f"/schemas/ids/{made['id']}", f"/schemas/ids/{made['id']}/schema"):
        assert alice.ask("GET", f"{path}?subject=mine-value") == 403
        assert alice.ask("GET", f"{path}?subject=:.:mine-value") == 403
        assert root.ask("GET", f"{path}?subject=mine-value") == 200
    # A reference, whose fields the reasons of a refusal would name.
    reference = {"name": "Hidden", "subject": "hidden-value", "version": 1}
    referring = {"schema": '{"type":"array","items":"Hidden"}', "references": [reference]}
    for path in (
        "/subjects/mine-value/versions",
        "/subjects/mine-value",
        "/compatibility/subjects/mine-value/versions?verbose=true",
    ):
        answer = alice.answer("POST", path, referring)
        assert answer.status_code == 403, path
        assert "hidden_field" not in answer.text
    # A name that stands for another subject, called from another context.
    assert root.ask("PUT", "/config/mine-value", {"alias": "hidden-value"}) == 200
    for path in ("/subjects/mine-value", "/contexts/.x/subjects/:.:mine-value"):
        assert alice.ask("GET", f"{path}/versions/1") == 403, path
    grant(broker, "alice", "mine")


def test_rights_on_all_topics_are_none_on_settings_of_contexts(broker: Broker) -> None:
    alice = Person(broker, "alice")
    grant(broker, "alice", "*", Operation.ALTER_CONFIGS)
    until(lambda: alice.ask("PUT", "/config/any-value", {"compatibility": "NONE"}) == 200)
    for path in ("/config/:.other:", "/config/:.__GLOBAL:", "/config"):
        assert alice.ask("PUT", path, {"compatibility": "NONE"}) == 403, path
    grant(broker, "alice", "*")


def test_only_who_may_alter_the_cluster_chooses_ids(broker: Broker) -> None:
    alice, root = Person(broker, "alice"), Person(broker, "root")
    grant(broker, "alice", "bulk", Operation.WRITE, Operation.ALTER_CONFIGS)
    until(lambda: alice.ask("PUT", "/mode/bulk-value", {"mode": "READWRITE"}) == 200)
    assert alice.ask("PUT", "/mode/bulk-value", {"mode": "IMPORT"}) == 403
    assert root.ask("PUT", "/mode/bulk-value", {"mode": "IMPORT"}) == 200
    # The next id would not fit into a message any more.
    for schema_id in (0, 2**31 - 1, 2**31, 2**63):
        body = {"schema": '"float"', "id": schema_id, "version": 1}
        assert root.ask("POST", "/subjects/bulk-value/versions", body) == 422
    version = {"schema": '"float"', "id": 5000, "version": 2**31}
    assert root.ask("POST", "/subjects/bulk-value/versions", version) == 422
    assert root.ask("POST", "/subjects/more-value/versions", {"schema": '"float"'}) == 200
    grant(broker, "alice", "bulk")


def test_nobody_waits_for_all_that_another_sends_at_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst: a schema that keeps the process busy, again and again by the same user."""
    looked_at: list[str] = []
    go_on = threading.Event()
    exchange = WorkerProcess._exchange

    async def slowly(self: Any, process: Any, request: Any) -> Any:
        looked_at.append(request.schema.schema)
        if "slow" in looked_at[-1]:
            await asyncio.to_thread(go_on.wait, 8)
        return await exchange(self, process, request)

    monkeypatch.setattr(WorkerProcess, "_exchange", slowly)
    slow = {"schema": '{"type":"fixed","name":"slow","size":1}'}
    grant(broker, "alice", "quick", Operation.WRITE)
    grant(broker, "mallory", "slow", Operation.WRITE)
    with ThreadPoolExecutor(5) as pool:
        mallory, alice = Person(broker, "mallory"), Person(broker, "alice")
        path = "/compatibility/subjects/slow-value/versions"
        held = [pool.submit(mallory.ask, "POST", path, slow) for _ in range(4)]
        until(lambda: len(looked_at) == 1, "the first of them")
        asked = pool.submit(alice.ask, "POST", "/subjects/quick-value/versions", SCHEMA)
        until(lambda: turns(broker) == 2, "both at work")
        go_on.set()
        assert asked.result(60) == 200
        assert looked_at.index(SCHEMA["schema"]) == 1
        assert [each.result(60) for each in held] == [200] * 4
    assert turns(broker) == 0
    for who, topic in (("alice", "quick"), ("mallory", "slow")):
        grant(broker, who, topic)


def turns(broker: Broker) -> int:
    """How many senders have something at work."""

    def at_work(server: Any) -> int:
        return len(server.partitions.door._registry.turns)

    return inside(broker, at_work)


def test_pages_of_subjects_have_only_those_that_may_be_seen(broker: Broker) -> None:
    alice, root = Person(broker, "alice"), Person(broker, "root")
    for name in ("aaa-value", "zzz-value"):
        assert root.ask("POST", f"/subjects/{name}/versions", SCHEMA) == 200
    grant(broker, "alice", "zzz", Operation.DESCRIBE)
    until(lambda: alice.answer("GET", "/subjects?limit=1").json() == ["zzz-value"])
    grant(broker, "alice", "zzz")


def test_who_may_describe_the_cluster_reads_everything(broker: Broker) -> None:
    alice, root = Person(broker, "alice"), Person(broker, "root")
    root.ask("POST", "/subjects/anything-value/versions", SCHEMA)
    grant(broker, "alice", "kafka-cluster", Operation.DESCRIBE, kind=Resource.CLUSTER)
    until(lambda: alice.ask("GET", "/subjects/anything-value/versions") == 200)
    assert "anything-value" in alice.answer("GET", "/subjects").json()
    assert alice.ask("POST", "/subjects/anything-value/versions", SCHEMA) == 403
    grant(broker, "alice", "kafka-cluster", kind=Resource.CLUSTER)


def test_a_certificate_says_who_asks_over_https(tmp_path: Path) -> None:
    settings = tls_settings(tmp_path) | AUTHORIZER
    settings |= {
        "http.listen": "127.0.0.1:0",
        "http.security.protocol": "SSL",
        "listener.name.http.ssl.client.auth": "requested",
        "listener.name.http.ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/",
        "super.users": "User:root",
    }
    with Broker(settings) as broker:

        def ask(name: str | None, headers: dict[str, str] | None = None) -> httpx.Response:
            issued = None if name is None else of_user(name)
            context = client_context(issued, tmp_path)
            with httpx.Client(verify=context, headers=headers, timeout=60) as client:
                return client.get(f"{broker.http_url}/subjects/x-value/versions")

        assert ask("root").status_code == 404
        refused = ask("mallory")
        assert refused.status_code == 403
        assert "User:mallory lacks DESCRIBE on TOPIC 'x'" in refused.json()["message"]
        assert "User:ANONYMOUS lacks" in ask(None).json()["message"]
        # Nobody is another because they say so; only brokers are believed.
        forged = {"x-forward": "true", "x-moldau-principal": "User:root"}
        assert ask("mallory", forged).status_code == 403
        assert ask("root", forged | {"x-moldau-principal": "User:mallory"}).status_code == 403
        # One whom no rule names gets nothing.
        (tmp_path / "authority.pem").write_text(authority().certificate)
        with pytest.raises(httpx.TransportError):
            ask("NOBODY 1")


def test_a_login_is_not_shown_in_what_is_refused(broker: Broker) -> None:
    given = base64.b64encode(b"mallory:of mallory").decode()
    answer = Person(broker, "mallory").answer("GET", "/schemas")
    assert given not in answer.text
    assert "of mallory" not in answer.text


def test_who_reads_subjects_is_told_what_else_it_may_do_with_them() -> None:
    with Broker(LOGINS | AUTHORIZER | ROOT) as broker:
        root, alice, mallory = (Person(broker, name) for name in ("root", "alice", "mallory"))
        assert root.ask("POST", "/subjects/trips-value/versions", SCHEMA) == 200
        assert root.ask("POST", "/subjects/bills-value/versions", SCHEMA) == 200
        grant(broker, "alice", "trips", Operation.WRITE)
        grant(broker, "alice", "bills", Operation.DESCRIBE, Operation.DELETE)

        def told(who: Person, path: str) -> str | None:
            found: str | None = who.answer("GET", path).headers.get("x-moldau-operations")
            return found

        def all_told() -> list[str | None]:
            paths = (
                "/subjects",
                "/subjects/trips-value/versions",
                "/subjects/bills-value/versions",
            )
            return [told(alice, path) for path in paths]

        until(lambda: all_told() == ["Write,Delete", "Write", "Delete"], "the rights")
        assert told(root, "/subjects/trips-value/versions") == "Write,Delete,AlterConfigs"
        assert told(mallory, "/subjects") == ""
        assert told(mallory, "/subjects/trips-value/versions") is None
        # What is written to an alias is written to what it stands for.
        assert root.ask("PUT", "/config/trips-value", {"alias": "bills-value"}) == 200
        assert told(alice, "/subjects/trips-value/versions") == ""
