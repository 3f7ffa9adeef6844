"""The command line of `moldau broker`: flags, config files, mistakes, the process itself."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from moldau.cli import main
from moldau.cli.app import app
from moldau.cli.commands.broker import (
    ALL_FLAGS,
    WrongUsage,
    parse_flags,
    read_config,
)
from moldau.cli.commands.broker import settings_of as settings_of_flags
from moldau.settings import InvalidSetting, parse_properties


@contextmanager
def broker_process(*flags: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "moldau", "broker", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_both_readers_of_the_command_line_know_the_same_flags() -> None:
    command = get_command(app).commands["broker"]  # type: ignore[attr-defined]
    flags = {flag for parameter in command.params for flag in parameter.opts}
    assert flags - {"--help", "-h"} == ALL_FLAGS


def test_flags_are_read_with_a_space_or_an_equals_sign() -> None:
    words = ["--id", "3", "--listen=0.0.0.0:1", "--set", "a=b", "--set=c=d"]
    assert parse_flags(words) == {
        "--id": ["3"],
        "--listen": ["0.0.0.0:1"],
        "--set": ["a=b", "c=d"],
    }


@pytest.mark.parametrize(
    "words", [["--help"], ["extra"], ["--id"], ["--id", "--set"], ["--id", "1", "--id", "2"]]
)
def test_what_is_not_well_formed_goes_to_the_full_parser(words: list[str]) -> None:
    assert parse_flags(words) is None


def test_flags_win_over_set_and_set_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# ours\nnode.id = 1\nnum.partitions=2\nlog.retention.ms=5000\n\n! end\n")
    settings = settings_of_flags(
        {
            "--config": [str(file)],
            "--set": ["num.partitions=3", "node.id=4"],
            "--id": ["5"],
            "--data-dir": ["elsewhere"],
            "--listen": ["127.0.0.1:0"],
            "--advertise": ["example.org:9092"],
        }
    )
    assert settings.node_id == 5
    assert settings.num_partitions == 3
    assert settings.topic_defaults.retention_ms == 5000
    assert settings.folder == Path("elsewhere")
    (listener,) = settings.all_listeners
    assert (listener.host, listener.port) == ("127.0.0.1", 0)
    assert listener.advertised == ("example.org", 9092)


@pytest.mark.parametrize(
    ("name", "is_told"),
    [
        ("listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config", True),
        ("listener.name.sasl_ssl.ssl.key.password", True),
        ("ssl.keystore.password", True),
        ("zookeeper.digest", True),
        ("http.console.oidc.client.secret", True),
        ("listener.name.sasl_ssl.ssl.keystore.location", False),
        ("zookeeper.connect", False),
    ],
)
def test_a_secret_on_the_command_line_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, is_told: bool
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"{name}=hidden:away\n")
    for flags in ({"--set": [f"{name}=hidden:away"]}, {"--config": [str(file)]}):
        with suppress(InvalidSetting):
            settings_of_flags(flags)
        said = capsys.readouterr().err
        assert (f"every user of this machine can read --set {name}" in said) == (
            is_told and "--set" in flags
        )
        assert "hidden" not in said


def test_a_toml_file_may_quote_names_or_nest_them(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(
        '"num.partitions" = 3\nauto.create.topics.enable = false\n'
        '[log]\nretention.ms = 5000\ncleanup.policy = ["delete"]\n'
    )
    assert read_config(str(file)) == {
        "num.partitions": "3",
        "auto.create.topics.enable": "false",
        "log.retention.ms": "5000",
        "log.cleanup.policy": "delete",
    }


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.properties", "node.id=1\nnonsense\n", "line 2: expected KEY=VALUE"),
        ("a.properties", "=3", "line 1"),
        ("a.toml", "x = = 1", "a.toml"),
        ("a.toml", "x = 2020-01-01", "x cannot be a date"),
    ],
)
def test_a_config_file_with_a_mistake_is_refused_where_it_is(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(WrongUsage, match=reason):
        read_config(str(tmp_path / name))


@given(st.text())
def test_any_text_is_properties_or_refused(text: str) -> None:
    try:
        parse_properties(text)
    except ValueError:
        pass


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--set", "log.retention.mss=1"], "did you mean log.retention.ms?"),
        (["--set", "num.partitions=none"], "num.partitions=none"),
        (["--set", "num.partitions"], "expected KEY=VALUE"),
        (["--listen", "here"], "HOST:PORT"),
        (["--id", "-1"], "node.id"),
        (["--config", "no-such-file"], "no-such-file"),
        (["--no-such-flag"], "--no-such-flag"),
        (["--data-dir"], "--data-dir"),
    ],
)
def test_a_mistake_ends_with_status_2_and_its_name(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["broker", *flags]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""


def test_the_ready_line_names_all_listeners(tmp_path: Path) -> None:
    flags = ("--listen", "OUT://127.0.0.1:0,IN://127.0.0.1:0", "--data-dir", str(tmp_path))
    protocols = "listener.security.protocol.map=OUT:PLAINTEXT,IN:PLAINTEXT"
    with broker_process(*flags, "--set", protocols) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        pattern = r"moldau broker 0 ready on OUT://127\.0\.0\.1:(\d+),IN://127\.0\.0\.1:(\d+)\n"
        found = re.fullmatch(pattern, ready)
        assert found, ready
        for port in found.groups():
            socket.create_connection(("127.0.0.1", int(port))).close()


def test_the_ready_line_is_all_of_stdout_and_sigterm_ends_it_cleanly(tmp_path: Path) -> None:
    flags = ("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--id", "7")
    with broker_process(*flags) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        name, address = ready.rsplit(" on ", 1)
        assert name == "moldau broker 7 ready"
        host, port = address.strip().split(":")
        socket.create_connection((host, int(port)), timeout=60).close()
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
        assert rest == ""
        assert process.returncode == 0


def test_a_port_that_is_taken_is_named_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with broker_process("--data-dir", str(tmp_path), "--listen", address) as process:
            _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"{address} is in use by another process" in errors
    assert "--listen" in errors
    assert "Traceback" not in errors


def test_a_second_broker_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    flags = ("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    with broker_process(*flags) as first:
        assert first.stdout is not None
        assert "ready" in first.stdout.readline()
        with broker_process(*flags) as second:
            _, errors = second.communicate(timeout=60)
        assert second.returncode == 1
        assert str(tmp_path) in errors
        assert "Traceback" not in errors
