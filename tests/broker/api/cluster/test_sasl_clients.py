"""Real clients that authenticate by SASL."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.broker.api.cluster.sasl import (
    BASE,
    SCRAMS,
    WITHIN_S,
)
from tests.certificates import authority, client_context, tls_settings


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(BASE) as broker:
        yield broker


# Real clients


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS])
def test_real_clients_get_in_over_tls(
    tmp_path: Path, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = tls_settings(tmp_path) | {
        key.replace("sasl_plaintext", "sasl_ssl"): text for key, text in BASE.items()
    }
    settings["listeners"] = "SASL_SSL://127.0.0.1:0"
    caplog.set_level(logging.DEBUG, "moldau")
    with Broker(settings) as broker:
        assert _librdkafka_gets_in(broker, mechanism, "wonder land")
        assert not _librdkafka_gets_in(broker, mechanism, "wrong password")
        assert _kafka_python_gets_in(broker, mechanism, tmp_path)
        assert asyncio.run(_aiokafka_gets_in(broker, mechanism, tmp_path))
    assert "wonder land" not in caplog.text


def _librdkafka_gets_in(broker: Broker, mechanism: str, password: str) -> bool:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    errors: list[Any] = []
    configuration: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": authority().certificate,
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        "error_cb": errors.append,
        "logger": logging.getLogger("quiet"),
    }
    admin = AdminClient(configuration)
    within_s = 0.5 if password.startswith("wrong") else WITHIN_S
    try:
        return bool(admin.list_topics(timeout=within_s).brokers)
    except KafkaException:

        def is_told() -> bool:
            admin.poll(0.05)
            return any("uthentication" in str(each) for each in errors)

        until(is_told, "the reason")
        return False


def _kafka_python_gets_in(broker: Broker, mechanism: str, folder: Path) -> bool:
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_SSL",
        ssl_cafile=str(folder / "authority.pem"),
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password="wonder land",
    )
    try:
        return isinstance(admin.list_topics(), list)
    finally:
        admin.close()


async def _aiokafka_gets_in(broker: Broker, mechanism: str, folder: Path) -> bool:
    from aiokafka.admin import AIOKafkaAdminClient

    admin = AIOKafkaAdminClient(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_SSL",
        ssl_context=client_context(),
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password="wonder land",
    )
    await admin.start()
    try:
        return isinstance(await admin.list_topics(), list)
    finally:
        await admin.close()


def test_confluents_client_renews_its_session(caplog: pytest.LogCaptureFixture) -> None:
    """It does so after nine tenths of the time, which a busy machine may take to get there."""
    assert any(_renews_in_time(each, caplog) for each in (700, 2_100, 8_400, 33_600))


def _renews_in_time(session_ms: int, caplog: pytest.LogCaptureFixture) -> bool:
    from confluent_kafka import Producer

    caplog.clear()
    with Broker(BASE | {"connections.max.reauth.ms": str(session_ms)}) as broker:
        errors: list[Any] = []
        configuration: dict[str, Any] = {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "wonder land",
            "error_cb": errors.append,
        }
        producer = Producer(configuration)
        end = time.monotonic() + 3 * session_ms / 1000
        delivered: list[Any] = []
        while time.monotonic() < end:
            producer.produce("t", b"x", on_delivery=lambda error, _: delivered.append(error))
            producer.poll(0.02)
        assert producer.flush(WITHIN_S) == 0
        assert delivered
        assert not any(delivered)
    return not errors and "after its session ended" not in caplog.text
