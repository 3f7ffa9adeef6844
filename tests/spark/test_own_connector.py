"""Beside Spark's own Kafka source, fetched from Maven Central where it can be reached."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.testing import Broker
from tests.spark.both_sources import UNAVAILABLE
from tests.spark.topics import fresh_topic

ROOT = Path(__file__).parents[2]
WITHIN_S = 400


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(WITHIN_S + 20)
def test_a_checkpoint_goes_from_sparks_own_source_to_ours_and_back(
    moldau_session_broker: Broker, tmp_path: Path
) -> None:
    topic = fresh_topic(moldau_session_broker)
    turns = ["kafka", "moldau", "kafka", "moldau"]
    arguments = [moldau_session_broker.bootstrap, topic, str(tmp_path / "checkpoint"), *turns]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.both_sources", *arguments],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    if ended.returncode == UNAVAILABLE:
        pytest.skip(ended.stdout)
    assert ended.returncode == 0, ended.stderr[-3000:]
    expected = [
        [name, number] for turn, name in enumerate(turns) for number in (2 * turn, 2 * turn + 1)
    ]
    assert json.loads(ended.stdout.splitlines()[-1]) == expected
