"""A whole pipeline against a locked broker, and where its secrets are not to be found."""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.client import Consumer, Producer
from moldau.client.connection import secured
from moldau.schemas import RegisteredAvroSerializer, RegistryClient
from moldau.security.client import ClientSecurity
from moldau.testing import Broker
from tests.spark.pipeline.files import table

ROOT = Path(__file__).parents[2]
WITHIN_S = 300

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(WITHIN_S + 20)]

PIPELINE = """
bootstrap = "{bootstrap}"

[client]
"security.protocol" = "SASL_SSL"
"ssl.truststore.location" = "{trusted}"
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.jaas.config" = '''org.apache.kafka.common.security.scram.ScramLoginModule required
    username="alice" password="{password}";'''

[registry]
url = "{registry}"
"ssl.ca.location" = "{trusted}"
"basic.auth.user.info" = "alice:{password}"

[spark]
"spark.sql.shuffle.partitions" = 1
"spark.ui.enabled" = true
"spark.ui.port" = 0
"spark.eventLog.enabled" = true
"spark.eventLog.dir" = "{folder}/events"
"spark.local.dir" = "{folder}/local"
"spark.hadoop.some.secret.key" = "${{ENV:MOLDAU_TEST_KEY}}"

[sources.orders]
topic = "orders"
schema = "id INT NOT NULL, city STRING"

[sources.visits]
topic = "visits"
format = "avro"

[tables.paris]
sql = "SELECT id, city FROM orders WHERE city = 'Paris'"

[sinks.table]
from = "orders"
type = "delta"
path = "lake/orders"

[sinks.visits]
from = "visits"
type = "delta"
path = "lake/visits"

[sinks.topic]
from = "paris"
type = "topic"
topic = "paris"
"""


VISIT = {"type": "record", "name": "Visit", "fields": [{"name": "page", "type": "string"}]}


def locked(broker: Broker, password: str) -> None:
    """Add alice, who may do what the pipeline does and nothing else."""
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient(secured(dict(broker.client_settings)))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion("alice", info, password.encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(60)

    def rule(name: str, operation: AclOperation, kind: str = "TOPIC") -> AclBinding:
        is_topic = kind == "TOPIC"
        return AclBinding(
            ResourceType[kind],
            name,
            ResourcePatternType.LITERAL if is_topic else ResourcePatternType.PREFIXED,
            "User:alice",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )

    # Who reads a topic may see its schemas.
    rules = [rule("orders", AclOperation.READ), rule("visits", AclOperation.READ)]
    for topic in ("paris", "orders-dead-letters", "visits-dead-letters"):
        rules += [rule(topic, AclOperation.WRITE), rule(topic, AclOperation.CREATE)]
    # What it takes to write exactly once.
    rules.append(rule("moldau-sink/", AclOperation.ALL, "TRANSACTIONAL_ID"))
    for operation in (AclOperation.CREATE, AclOperation.READ, AclOperation.WRITE):
        rules.append(rule("__moldau_commits", operation))
    for made in admin.create_acls(rules).values():
        made.result(60)


def visits(broker: Broker) -> list[bytes]:
    """Register a schema at the registry, which is as locked as the broker; return a visit."""
    security = ClientSecurity.parse(broker.client_settings)
    assert security is not None
    admin = security.login()
    registry = RegistryClient.of(
        {
            "url": broker.http_url,
            "ssl.ca.location": broker.client_settings["ssl.truststore.location"],
            "basic.auth.user.info": f"{admin['username']}:{admin['password']}",
        }
    )
    serializer = RegisteredAvroSerializer(registry, VISIT)
    return [serializer.serialize("visits", {"page": page}) for page in ("home", "shop")]


def forms(secret: str) -> Iterator[bytes]:
    """A secret as it is, and as it would look in what is encoded."""
    yield secret.encode()
    yield secret.encode("utf-16-le")
    yield base64.b64encode(secret.encode()).rstrip(b"=")
    yield secret.encode().hex().encode()


def test_a_pipeline_runs_by_its_rights_and_its_secrets_are_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    password, key, wrong = (secrets.token_urlsafe(24) for _ in range(3))
    work, kept = tmp_path / "work", tmp_path / "kept"
    for folder in (work / "events", work / "local", kept):
        folder.mkdir(parents=True)
    (kept / "password").write_text(password + "\n")
    (kept / "wrong").write_text(wrong + "\n")
    caplog.set_level("DEBUG")
    with Broker(secure=True, http_listen="127.0.0.1:0") as broker:
        locked(broker, password)
        for topic in ("orders", "visits"):
            broker.create_topic(topic)
        settings = broker.client_settings
        rows: list[Any] = [{"id": 1, "city": "Paris"}, {"id": 2, "city": "Prague"}]
        values = [json.dumps(row).encode() for row in rows] + [b"no order"]
        with Producer(broker.bootstrap, settings=settings) as producer:
            for value in values:
                producer.send("orders", value)
            for visit in visits(broker):
                producer.send("visits", visit)
        for name, reference in (("right", "password"), ("wrong", "wrong")):
            (work / f"{name}.toml").write_text(
                PIPELINE.format(
                    bootstrap=broker.bootstrap,
                    registry=broker.http_url,
                    trusted=settings["ssl.truststore.location"],
                    password=f"${{FILE:{kept}/{reference}}}",
                    folder=work,
                )
            )
        ended = subprocess.run(
            [sys.executable, "-m", "tests.spark.locked_pipeline", "right.toml", "wrong.toml"],
            cwd=work,
            env=os.environ
            | {"MOLDAU_TEST_KEY": key, "PYTHONPATH": f"{ROOT}/src:{ROOT}", "LC_ALL": "C.UTF-8"},
            capture_output=True,
            timeout=WITHIN_S,
            check=False,
        )
        output = ended.stdout.decode("utf-8", "replace")
        assert ended.returncode == 0, ended.stderr.decode("utf-8", "replace")[-4000:]
        # Each sink of orders read all three, of which one is a dead letter.
        counts = json.loads(output.splitlines()[-1])
        assert counts == {"table": 3, "topic": 3, "visits": 2}
        assert "refused: " in output
        assert "Authentication failed" in output or "authenticat" in output.lower()
        assert sorted(row["id"] for row in table(work / "lake" / "orders")) == [1, 2]
        assert sorted(row["page"] for row in table(work / "lake" / "visits")) == ["home", "shop"]
        with Consumer(broker.bootstrap, settings=settings) as consumer:
            consumer.subscribe("orders-dead-letters")
            letter = consumer.poll(60)
            assert letter is not None
            assert letter.value == b"no order"
        data = broker.data_dir
        own = {data / "secure"}
        found = {
            "output": ended.stdout + ended.stderr,
            "log": caplog.text.encode(),
            **{str(path): path.read_bytes() for path in files(work)},
            **{
                str(path): path.read_bytes()
                for path in files(data)
                if not any(path.is_relative_to(each) for each in own)
            },
        }
    assert len(found) > 20
    for place, content in found.items():
        for secret in (password, key, wrong):
            for form in forms(secret):
                assert form not in content, f"a secret is in {place}"


def files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())
