"""Logins at the HTTP side of a broker: in the environment, and never on the command line."""

from __future__ import annotations

import pytest

from moldau.cli.http_login import VARIABLE
from moldau.console.sampling.metrics import BytesOut
from moldau.testing import Broker
from tests.cli.conftest import Run

USERS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGINS = {
    "http.listen": "127.0.0.1:0",
    "http.security.protocol": "SASL_PLAINTEXT",
    "listener.name.http.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.http.plain.sasl.jaas.config": f'{USERS} user_alice="wonder@land:1";',
    "connection.failed.authentication.delay.ms": "0",
}


@pytest.mark.parametrize(
    "words",
    [
        ("top", "--once", "--http", "http://alice:wonder@127.0.0.1:1"),
        ("console", "--listen", "127.0.0.1:0", "--metrics", "http://alice:wonder@127.0.0.1:1/m"),
    ],
    ids=["top", "console"],
)
def test_one_on_the_command_line_is_refused_and_not_repeated(
    moldau: Run, words: tuple[str, ...]
) -> None:
    ended = moldau(*words)
    assert ended.status == 2
    assert VARIABLE in ended.err
    assert "wonder" not in ended.out + ended.err


def test_one_in_the_environment_counts(moldau: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(LOGINS) as broker:
        words = ("top", "--once", "--interval", "0.1", "--json", "--http", broker.http_url)
        refused = moldau(*words)
        assert refused.status == 1
        assert "it answered with status 401" in refused.err
        monkeypatch.setenv(VARIABLE, "alice:wonder@land:1")
        assert len(moldau(*words).json["brokers"]) == 1
        monkeypatch.setenv(VARIABLE, "alice")
        assert moldau(*words).status == 2


def test_the_consoles_samples_take_it_too() -> None:
    with Broker(LOGINS) as broker:
        url = f"{broker.http_url}/metrics?per_partition=false"
        right, wrong = BytesOut([url], login="alice:wonder@land:1"), BytesOut([url], login="alice:")
        assert right.rate() is None
        assert right.rate() == 0
        assert wrong.rate() is None
        assert wrong.rate() is None
