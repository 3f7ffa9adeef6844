"""Spark source and sink over SASL and TLS, and where their passwords are not to be found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.security.client_config import CLIENT_CONFIG_VARIABLE
from moldau.testing import Broker
from tests.clients.security.doors import DOORS, PASSWORD, Door, broker_with_all_doors
from tests.spark.own_connector import UNAVAILABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
WITHIN_S = 300
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(WITHIN_S + 20)]


def test_records_go_in_and_out_of_a_locked_broker(spark: SparkSession) -> None:
    with Broker(secure=True) as broker:
        broker.create_topic("locked")
        options = {f"kafka.{name}": text for name, text in broker.client_settings.items()}
        rows = spark.range(5).selectExpr("cast(id as string) as value")
        rows.write.format("moldau").options(**options).option("topic", "locked").mode(
            "append"
        ).save()
        found = (
            spark.read.format("moldau")
            .options(**options)
            .option("subscribe", "locked")
            .load()
            .selectExpr("cast(value as string) as v")
        )
        assert sorted(row["v"] for row in found.collect()) == list("01234")


def test_a_password_from_a_file_is_in_no_plan_no_checkpoint_and_no_log(tmp_path: Path) -> None:
    with Broker(secure=True) as broker:
        broker.create_topic("in")
        broker.create_topic("out")
        texts = broker.client_settings
        config = tmp_path / "client.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in texts.items()))
        # A process of its own: Spark's has the environment that it was started with.
        ended = subprocess.run(
            [sys.executable, "-m", "tests.spark.locked_stream", str(tmp_path), broker.bootstrap],
            cwd=ROOT,
            env=os.environ | {CLIENT_CONFIG_VARIABLE: str(config)},
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.endswith("1 record\n")
    secret = texts["sasl.jaas.config"].partition('password="')[2].partition('"')[0]
    assert len(secret) > 20
    assert secret not in ended.stdout + ended.stderr
    for path in tmp_path.rglob("*"):
        if path.is_file() and path != config:
            assert secret.encode() not in path.read_bytes(), path


def test_sparks_own_connector_uses_every_door_and_is_told_of_a_wrong_password(
    tmp_path: Path,
) -> None:
    # Each is tried over TLS, and one password without.
    doors = [each for each in DOORS if each.protocol != "SASL_PLAINTEXT"]
    doors.append(Door("SASL_PLAINTEXT", "SCRAM-SHA-256"))
    wrong = Door("SASL_SSL", "SCRAM-SHA-512")
    paths = []

    def prepare(broker: Broker, topic: str, door: Door, password: str = PASSWORD) -> None:
        broker.create_topic(topic)
        texts = door.properties(broker, tmp_path)
        options = {f"kafka.{key}": text.replace(PASSWORD, password) for key, text in texts.items()}
        paths.append(tmp_path / f"{topic}.json")
        paths[-1].write_text(json.dumps({"topic": topic, "options": options}))

    with broker_with_all_doors(tmp_path) as broker:
        for door in doors:
            prepare(broker, f"{door.who}.spark.{door}", door)
        prepare(broker, "alice.wrong", wrong, "a guess")
        # Where Java's clients may look for tokens.
        allowed = f"-D{ALLOWED_URLS}={(tmp_path / 'token').as_uri()}"
        ended = subprocess.run(
            [sys.executable, "-m", "tests.spark.own_connector_locked", *map(str, paths)],
            cwd=ROOT,
            env=os.environ
            | {"SPARK_SUBMIT_OPTS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {allowed}"},
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    if ended.returncode == UNAVAILABLE:
        pytest.skip(ended.stdout)
    assert ended.returncode == 0, ended.stderr[-3000:]
    *values, told = json.loads(ended.stdout.splitlines()[-1])
    assert values == [f"{door.who}.spark.{door}" for door in doors]
    assert "invalid credentials" in told or "Authentication" in told
    assert "a guess" not in told
