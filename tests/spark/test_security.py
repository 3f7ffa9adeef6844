"""Spark source and sink over SASL and TLS, and where their passwords are not to be found."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.security.client_config import CLIENT_CONFIG_VARIABLE
from moldau.testing import Broker
from tests.spark.both_sources import UNAVAILABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
WITHIN_S = 300

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


def test_sparks_own_connector_gets_in_and_is_told_of_a_wrong_password(tmp_path: Path) -> None:
    with Broker(secure=True) as broker:
        broker.create_topic("locked")
        texts = broker.client_settings
        # Its default form of a truststore is JKS.
        texts = {**texts, "ssl.truststore.type": "PEM"}
        right = {f"kafka.{name}": text for name, text in texts.items()}
        jaas = re.sub('password="[^"]*"', 'password="a guess"', texts["sasl.jaas.config"])
        wrong = right | {"kafka.sasl.jaas.config": jaas}
        paths = [tmp_path / "right.json", tmp_path / "wrong.json"]
        for path, options in zip(paths, (right, wrong), strict=True):
            path.write_text(json.dumps(options))
        ended = subprocess.run(
            [sys.executable, "-m", "tests.spark.own_connector_locked", "locked", *map(str, paths)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    if ended.returncode == UNAVAILABLE:
        pytest.skip(ended.stdout)
    assert ended.returncode == 0, ended.stderr[-3000:]
    values, told = json.loads(ended.stdout.splitlines()[-1])
    assert values == ["x", "y"]
    assert "invalid credentials" in told or "Authentication" in told
    assert "a guess" not in told
