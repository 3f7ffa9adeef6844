"""Documentation that cannot rot: its commands are run, its tables are derived.

In a `console` block a line with `$ ` is a command, and what follows is what it prints; `...` stands
for anything. The blocks of a page are run in order, in one folder. `moldau broker` and `moldau up`
are started in the background, on free ports that all later commands of the page use.
"""

from __future__ import annotations

import ast
import os
import random
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from confluent_kafka import Producer

from docs.generate import WITHOUT_EFFECT, commands, stale_pages
from moldau.broker.settings import BrokerSettings
from moldau.cli import main
from moldau.cli.app import InOrder
from moldau.log.config import LogConfig
from moldau.settings import definitions
from moldau.testing import Broker

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(#[^)]*)?\)")
NAMED_TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
DOCUMENTED_PORT = 9092
# Pages whose programs start Spark or a cluster. The README's are run with the quick tests.
SLOW = ("cluster", "getting-started", "lake", "pipelines", "spark", "testing")
# These need a network or a clone of their own.
NOT_RUN = ("pip install", "make ")


@dataclass(frozen=True)
class Command:
    text: str
    output: str


@dataclass(frozen=True)
class Program:
    text: str


def steps_of(page: Path) -> Iterator[Command | Program]:
    """What a reader would do who follows the page from top to bottom."""
    for language, body in BLOCK.findall(page.read_text("utf-8")):
        if language == "python":
            yield Program(body)
        if language == "console":
            _, *commands = re.split(r"^\$ ", body, flags=re.MULTILINE)
            for command in commands:
                text, _, output = command.partition("\n")
                if not text.startswith(NOT_RUN):
                    yield Command(text, output)


class Shell:
    """A person at a terminal, with a broker in another one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{DOCUMENTED_PORT}"
        self.brokers: list[subprocess.Popen[str]] = []
        bin_folder = Path(sys.executable).parent
        self.environment = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
        self.environment.pop("MOLDAU_BOOTSTRAP", None)

    def run(self, command: str) -> str:
        if command.startswith("moldau broker"):
            return self._start(f"{command} --listen 127.0.0.1:0")
        if command.startswith("moldau up"):
            return self._start(f"{command} --port {free_port_as_long_as_usual()}")
        ended = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
        return self._as_documented(ended.stdout)

    def _start(self, command: str) -> str:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.brokers.append(process)
        assert process.stdout is not None
        ready = process.stdout.readline()
        self.address = ready.strip().rpartition(" ")[2]
        self.environment["MOLDAU_BOOTSTRAP"] = self.address
        return self._as_documented(ready)

    def _as_documented(self, printed: str) -> str:
        """What is printed when the first broker has its usual port, and the others the next."""
        for number, address in enumerate(self.address.split(",")):
            printed = printed.replace(address, f"127.0.0.1:{DOCUMENTED_PORT + number}")
        return printed

    def close(self) -> None:
        for process in self.brokers:
            process.terminate()
            process.communicate(timeout=50)
            assert process.returncode == 0


def free_port_as_long_as_usual() -> int:
    """The first of some free ports in a row; four digits, so that tables look as they should."""
    for port in random.sample(range(2000, 9000, 10), 700):
        with ExitStack() as stack:
            try:
                for each in range(port, port + 10):
                    stack.enter_context(socket.create_server(("127.0.0.1", each)))
            except OSError:
                continue
            return port
    raise AssertionError("there are no ten free ports in a row")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def matches(expected: str, printed: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in expected.split("..."))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=pytest.mark.slow if page.stem in SLOW else ())
        for page in PAGES
    ],
)
def test_the_sessions_and_programs_of_a_page_do_what_it_shows(page: Path, shell: Shell) -> None:
    if find_spec("pyspark") is None and "moldau up" in page.read_text("utf-8"):
        pytest.skip("no clusters without pyspark, which brings ZooKeeper")
    for number, step in enumerate(steps_of(page)):
        if isinstance(step, Command):
            printed = shell.run(step.text)
            assert not step.output or matches(step.output, printed), f"$ {step.text}\n{printed}"
        else:
            is_test = "def test_" in step.text
            name = f"{'test' if is_test else 'program'}_{number}.py"
            (shell.folder / name).write_text(step.text, encoding="utf-8")
            runner = "-m pytest -q -p no:cacheprovider" if is_test else ""
            shell.run(f"{sys.executable} {runner} {name}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target, _ in LINK.findall(page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tests_that_a_page_names_exist(page: Path) -> None:
    for file, name in NAMED_TEST.findall(page.read_text("utf-8")):
        source = ROOT / "tests" / file
        assert source.exists(), file
        assert f"def {name}(" in source.read_text("utf-8"), f"{file}::{name}"


def test_every_promise_of_a_cluster_names_a_test_that_shows_it() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text("utf-8")
    _, _, promises = page.partition("\n## What is promised\n")
    promises, _, _ = promises.partition("\n## Growing and shrinking\n")
    rows = [line for line in promises.splitlines() if line.startswith("| ")]
    kept = [line for line in rows if not line.startswith(("| --- ", "| what ", "| wanted "))]
    assert len(kept) > 15
    for line in kept:
        assert NAMED_TEST.search(line), line


def test_generated_tables_are_up_to_date() -> None:
    stale = [page.name for page in stale_pages()]
    assert not stale, f"{stale} are not what the code says: run `make docs`"


def test_a_setting_is_read_somewhere_or_says_that_it_has_no_effect() -> None:
    settings = {**definitions(BrokerSettings), **definitions(LogConfig)}
    read = {
        node.attr
        for file in (ROOT / "src" / "moldau").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
    }
    unread = {name for name, each in settings.items() if each.attribute not in read}
    silent = {name for name, each in settings.items() if each.doc.startswith(WITHOUT_EFFECT)}
    assert unread == silent


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_every_command_has_help_and_is_in_the_docs(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    assert main([*name.split(), "--help"]) == 0
    assert "Usage: moldau " + name in capsys.readouterr().out
    assert f"### `moldau {name}" in (ROOT / "docs" / "cli.md").read_text("utf-8")


def test_every_option_says_what_it_does() -> None:
    for name, command in commands():
        for parameter in command.params:
            assert parameter.help, f"moldau {name}: {parameter.name}"


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    for name in InOrder.ORDER:
        assert re.search(rf"\b{name}\b", overview)


def test_the_files_of_a_data_folder_are_those_of_the_storage_page() -> None:
    listing = re.search(r"^moldau-data/\n(.*?)^```", storage_page(), re.MULTILINE | re.DOTALL)
    assert listing is not None
    documented = {line.split()[0] for line in listing[1].splitlines()}
    with Broker() as broker:
        broker.create_topic("orders", index_interval_bytes=0)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for value in ("1 tea", "2 teas"):
            producer.produce("orders", value)
            assert producer.flush(10) == 0
        broker.stop()
        entries = list(broker.data_dir.rglob("*"))
        found = {f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries}
    assert {without_offset(name) for name in found} == {without_offset(n) for n in documented}


def storage_page() -> str:
    return (ROOT / "docs" / "storage.md").read_text("utf-8")


def without_offset(name: str) -> str:
    return re.sub(r"^\d{20}", "", name)
