"""Documentation that cannot rot: its commands are run, its tables are derived."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from confluent_kafka import Producer

from docs.generate import WITHOUT_EFFECT, commands, stale_pages
from moldau.broker.settings.broker import BrokerSettings
from moldau.cli import main
from moldau.cli.app import InOrder
from moldau.log.config import LogConfig
from moldau.settings import definitions
from moldau.testing import Broker
from tests.pages import Command, Shell, steps_of

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(#[^)]*)?\)")
NAMED_TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
# Pages whose programs start Spark or a cluster, or take long. The README's are run with the quick
# tests.
SLOW = (
    *("client", "cluster", "getting-started", "lake", "operations", "pipelines", "queues"),
    *("security", "spark", "testing"),
)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, Path(sys.executable).parent)
    yield shell
    shell.close()


@pytest.mark.timeout(400)
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
    for number, step in enumerate(steps_of(page.read_text("utf-8"))):
        if isinstance(step, Command):
            shell.do(step)
        else:
            is_test = "def test_" in step.text
            name = f"{'test' if is_test else 'program'}_{number}.py"
            (shell.folder / name).write_text(step.text, encoding="utf-8")
            runner = "-m pytest -q -p no:cacheprovider" if is_test else ""
            shell.run(f"{sys.executable} {runner} {name}")


def test_the_links_of_a_page_lead_somewhere() -> None:
    for page in PAGES:
        for target, _ in LINK.findall(page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_tests_that_a_page_names_exist() -> None:
    for page in PAGES:
        for file, name in NAMED_TEST.findall(page.read_text("utf-8")):
            source = ROOT / "tests" / file
            assert source.exists(), f"{page.name}: {file}"
            text = source.read_text("utf-8")
            assert f"def {name}(" in text, f"{page.name}: {file}::{name}"


def test_every_promise_of_a_cluster_names_a_test_that_shows_it() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text("utf-8")
    _, _, promises = page.partition("\n## What is promised\n")
    promises, _, _ = promises.partition("\n## Growing and shrinking\n")
    rows = [line for line in promises.splitlines() if line.startswith("| ")]
    kept = [line for line in rows if not line.startswith(("| --- ", "| what ", "| promise "))]
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


def test_every_command_has_help_and_is_in_the_docs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    documented = (ROOT / "docs" / "cli.md").read_text("utf-8")
    for name, _ in commands():
        assert main([*name.split(), "--help"]) == 0, name
        assert "Usage: moldau " + name in capsys.readouterr().out
        assert f"### `moldau {name}" in documented


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
            assert producer.flush(60) == 0
        broker.stop()
        entries = list(broker.data_dir.rglob("*"))
        found = {f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries}
    assert {without_offset(name) for name in found} == {without_offset(n) for n in documented}


def storage_page() -> str:
    return (ROOT / "docs" / "storage.md").read_text("utf-8")


def without_offset(name: str) -> str:
    return re.sub(r"^\d{20}", "", name)
