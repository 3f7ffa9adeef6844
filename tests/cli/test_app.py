"""The command as a whole: version, colours, completion."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from moldau import __version__
from moldau.cli import main
from moldau.cli.views.output import ProgressBar, show_table
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.processes import started


def run_on_a_terminal(*words: str, **environment: str) -> str:
    """What a person would see: the command's output on a pseudo-terminal, escapes included."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "moldau", *words]
    environment = clean_environment() | {"TERM": "xterm-256color"} | environment
    with started(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        seen = b""
        try:
            while piece := os.read(ours, 65536):
                seen += piece
        except OSError:
            pass  # Linux ends a pseudo-terminal with EIO, once all who had it open are gone.
        finally:
            os.close(ours)
        process.wait(60)
    return seen.decode()


def clean_environment() -> dict[str, str]:
    unwanted = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "MOLDAU_BOOTSTRAP")
    return {key: value for key, value in os.environ.items() if key not in unwanted}


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"moldau {__version__}\n"


def test_an_unknown_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explode"]) == 2
    assert "explode" in capsys.readouterr().err


COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")


def test_colours_are_for_terminals_without_no_color() -> None:
    words = ("topics", "list", "--bootstrap", "127.0.0.1:1")
    assert COLOUR.search(run_on_a_terminal(*words))
    assert not COLOUR.search(run_on_a_terminal(*words, NO_COLOR="1"))
    piped = subprocess.run(
        [sys.executable, "-m", "moldau", *words],
        capture_output=True,
        env=clean_environment(),
        check=False,
    )
    assert b"\x1b" not in piped.stdout + piped.stderr


def complete(words: str, bootstrap: str) -> list[str]:
    ended = subprocess.run(
        [sys.executable, "-m", "moldau"],
        env=clean_environment()
        | {
            "_MOLDAU_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
            "MOLDAU_BOOTSTRAP": bootstrap,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout.split()


def test_the_shell_completes_commands_options_and_topic_names(
    moldau_session_broker: Broker, topic: str
) -> None:
    bootstrap = moldau_session_broker.bootstrap
    assert sorted(complete("moldau top", bootstrap)) == ["top", "topics"]
    assert "--data-dir" in complete("moldau broker --da", bootstrap)
    # A person is not made to wait for a broker that takes long.
    until(lambda: topic in complete("moldau consume topic-", bootstrap))
    assert complete("moldau consume topic-", "127.0.0.1:1") == []


def test_numbers_stand_right_and_text_left_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("NAME", "SIZE"), [("a", 5), ("longer", 1000)])
    assert capsys.readouterr().out == "NAME    SIZE\na          5\nlonger  1000\n"


def test_a_table_without_rows_is_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("NAME", "SIZE"), [])
    assert capsys.readouterr().out == "NAME  SIZE\n"


def test_a_progress_bar_appears_only_when_work_is_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ProgressBar("Working", 10, enabled=True) as bar:
        bar.update(5)
    assert "Working" not in capsys.readouterr().err
    monkeypatch.setattr("moldau.cli.views.output.BAR_DELAY_S", 0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with ProgressBar("Working", 10, enabled=True) as bar:
        bar.update(5)
    assert "Working" in capsys.readouterr().err
    with ProgressBar("Working", 10, enabled=False) as bar:
        bar.update(5)
    assert capsys.readouterr().err == ""
