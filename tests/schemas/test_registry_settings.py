"""A registry over HTTPS that asks who one is: settings by the names of Confluent's clients."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.cli import main
from moldau.schemas import RegistryClient, SchemaError
from moldau.schemas.registry_settings import RegistrySettings, registry_properties
from moldau.security.client_config import CLIENT_CONFIG_VARIABLE
from moldau.security.references import BrokenReference
from moldau.settings import InvalidSetting
from moldau.testing import Broker
from tests.certificates import of_user, stranger, tls_settings

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("registry")
    (folder / "stranger.pem").write_text(stranger().certificate)
    (folder / "alice.pem").write_text(of_user("alice").pem)
    (folder / "nothing.pem").write_text("nothing")
    return folder


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    """One that asks for a certificate, and for a password."""
    settings = {
        "http.listen": "127.0.0.1:0",
        "http.security.protocol": "SASL_SSL",
        "listener.name.http.ssl.client.auth": "required",
        "listener.name.http.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.http.plain.sasl.jaas.config": f'{PLAIN} required user_alice="of alice";',
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker(tls_settings(folder) | {"listeners": "PLAINTEXT://127.0.0.1:0"} | settings) as it:
        yield it


@pytest.fixture
def properties(broker: Broker, folder: Path) -> dict[str, str]:
    return {
        "schema.registry.url": broker.http_url,
        "schema.registry.ssl.ca.location": str(folder / "authority.pem"),
        "schema.registry.ssl.certificate.location": str(folder / "alice.pem"),
        "basic.auth.credentials.source": "USER_INFO",
        "basic.auth.user.info": "alice:of alice",
    }


def test_who_has_what_is_asked_for_gets_in(properties: dict[str, str]) -> None:
    assert properties["schema.registry.url"].startswith("https://")
    client = RegistryClient.of(properties)
    made = client.register("orders-value", SCHEMA)
    assert RegistryClient.of(properties).by_id(made.id).text == made.text


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("basic.auth.user.info", "alice:a guess", "rejected our credentials"),
        ("schema.registry.ssl.ca.location", "stranger.pem", "certificate verify failed"),
        ("schema.registry.ssl.ca.location", "none.pem", "ca.location.*none.pem.*no such file"),
        ("schema.registry.ssl.ca.location", "nothing.pem", "ca.location.*nothing.pem cannot be"),
        ("schema.registry.ssl.certificate.location", "none.pem", "certificate.location.*none.pem"),
        ("schema.registry.ssl.certificate.location", "", "certificate required"),
    ],
)
def test_who_lacks_something_is_told_what(
    properties: dict[str, str], folder: Path, name: str, value: str, reason: str
) -> None:
    properties[name] = str(folder / value) if value.endswith(".pem") else value
    with pytest.raises(SchemaError) as refused:
        RegistryClient.of(properties).subjects()
    assert re.search(reason, str(refused.value)), refused.value
    assert "a guess" not in str(refused.value)


def test_commands_take_them_from_the_client_config(
    properties: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "password").write_text("alice:of alice\n")
    properties["basic.auth.user.info"] = "${FILE:password}"
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))
    at = ("--registry", properties["schema.registry.url"])
    # Commands leave it in the environment, for what they start.
    monkeypatch.setenv(CLIENT_CONFIG_VARIABLE, "")
    assert main(("schemas", "list", *at)) == 1
    assert "certificate verify failed" in capsys.readouterr().err
    assert main(("schemas", "list", *at, "--client-config", str(config), "--json")) == 0
    assert main(("schemas", "delete", "none-value", *at, "--client-config", str(config))) == 1
    assert "none-value" in capsys.readouterr().err


def test_names_may_have_the_prefix_or_not() -> None:
    found = RegistrySettings.parse({"url": "https://r", "schema.registry.ssl.ca.location": "ca"})
    assert found == RegistrySettings("https://r", ssl_ca_location="ca")
    given = {"sasl.username": "a", "basic.auth.user.info": "a:b", "schema.registry.url": "u"}
    assert sorted(registry_properties(given)) == ["basic.auth.user.info", "schema.registry.url"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, r"schema\.registry\.url: .* missing"),
        ({"url": "u", "ssl.ca.loction": "x"}, r"did you mean ssl\.ca\.location\?"),
        ({"url": "u", "ssl.key.location": "x"}, r"needs ssl\.certificate\.location"),
        ({"url": "u", "basic.auth.credentials.source": "SASL_INHERIT"}, "only USER_INFO and URL"),
    ],
)
def test_what_cannot_be_is_an_error_of_the_settings(given: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        RegistrySettings.parse(given)


def test_references_are_followed_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = RegistrySettings.parse({"url": "u", "basic.auth.user.info": "${ENV:MOLDAU_TEST_INFO}"})
    with pytest.raises(BrokenReference):
        found.resolved()
    monkeypatch.setenv("MOLDAU_TEST_INFO", "alice:of alice")
    assert found.resolved().basic_auth_user_info == "alice:of alice"
    assert "of alice" not in repr(found.resolved())
    assert found.basic_auth_user_info == "${ENV:MOLDAU_TEST_INFO}"
