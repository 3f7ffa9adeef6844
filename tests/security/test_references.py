"""References to the environment and to files, in texts that should hold no secrets."""

from __future__ import annotations

from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.client_config import client_properties
from moldau.security.jaas import parse_jaas
from moldau.security.references import (
    BrokenReference,
    resolve,
    resolve_property,
    with_absolute_paths,
)
from moldau.settings import InvalidSetting

LOGIN = 'x.PlainLoginModule required username="alice" password="${FILE:%s}";'


def test_a_text_gets_what_it_refers_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOLDAU_TEST_SECRET", "of alice ${ENV:HOME}")
    (tmp_path / "password").write_text("line\n")
    assert resolve("a ${ENV:MOLDAU_TEST_SECRET}!") == "a of alice ${ENV:HOME}!"
    assert resolve(f"${{FILE:{tmp_path}/password}}") == "line"
    assert (
        resolve("$${ENV:HOME} ${other} $ENV ${env:HOME}") == "${ENV:HOME} ${other} $ENV ${env:HOME}"
    )
    relative = with_absolute_paths("${FILE:password} ${ENV:HOME} $${FILE:x}", tmp_path)
    assert relative == f"${{FILE:{tmp_path}/password}} ${{ENV:HOME}} $${{FILE:x}}"
    assert with_absolute_paths("${FILE:/etc/x}", tmp_path) == "${FILE:/etc/x}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${ENV:MOLDAU_NO_SUCH}", "MOLDAU_NO_SUCH is not set"),
        ("${ENV:}", "is not set"),
        ("${FILE:/no/such/file}", "cannot be read: No such file"),
        ("${FILE:/}", "cannot be read: Is a directory"),
        ("${FILE:a\0b}", "not the path of a file"),
        ("${FILE:/dev/zero}", "is larger than"),
    ],
)
def test_what_is_not_there_is_named(text: str, reason: str) -> None:
    with pytest.raises(BrokenReference, match=reason):
        resolve(f"before {text} after")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_password_fits_into_a_login_module(password: str) -> None:
    password = password.replace("\r", "").removesuffix("\n")
    with NamedTemporaryFile() as file:
        Path(file.name).write_bytes(password.encode())
        text = resolve_property("kafka.sasl.jaas.config", LOGIN % file.name)
    assert parse_jaas(text).options == {"username": "alice", "password": password}


def test_a_client_config_may_refer_to_files_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOLDAU_TEST_PROTOCOL", "SASL_SSL")
    (tmp_path / "password").write_text('a "quoted" one\n')
    config = tmp_path / "client.properties"
    config.write_text(
        f"security.protocol=${{ENV:MOLDAU_TEST_PROTOCOL}}\nsasl.jaas.config={LOGIN % 'password'}\n"
        "sasl.password=${FILE:password}\n"
    )
    found = client_properties(str(config))
    assert found["security.protocol"] == "SASL_SSL"
    assert found["sasl.password"] == 'a "quoted" one'
    assert parse_jaas(found["sasl.jaas.config"]).options["password"] == 'a "quoted" one'
    (tmp_path / "password").unlink()
    with pytest.raises(InvalidSetting, match="password cannot be read"):
        client_properties(str(config))
