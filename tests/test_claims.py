"""Claims of the documentation, checked against the code that they are about."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator

import pytest

from bench.kafka.jars import KAFKA_VERSION
from bench.measure import ALL
from docs.generate import commands
from moldau.broker.settings.broker import BrokerSettings
from moldau.client import Admin
from moldau.log.config import LogConfig
from moldau.settings import definitions
from moldau.testing import Cluster
from tests.test_docs import PAGES, ROOT
from tests.test_layers import LAYERS

LEVELS = ("debug", "info", "warning", "error", "critical", "exception")
LOGGED = re.compile(r"^(?:CRITICAL|ERROR|WARNING|INFO) moldau\.\w+  (.+)$", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
# Options of other programs, and of `make torture`.
FOREIGN_OPTIONS = {
    *("--upgrade", "--exclude", "--preserve-status", "--install-completion", "--help"),
    *("--seed", "--minutes", "--verbose"),
    # Of Kafka's own tools.
    "--command-config",
}
# Settings of consumers and features, which no broker has among its own.
FOREIGN_SETTINGS = {"check.crcs", "eligible.leader.replicas.version"}
PATH = re.compile(r"`((?:bench|conformance|docs|examples|tests|src)/[\w./-]+)`")


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def section(text: str, heading: str) -> str:
    _, _, rest = text.partition(f"\n## {heading}\n")
    assert rest, heading
    return rest.partition("\n## ")[0]


def test_the_overview_lists_the_parts_in_the_order_of_the_layers() -> None:
    rows = re.findall(r"^\| `moldau\.(\w+)` \|", page("docs/index.md"), re.MULTILINE)
    assert rows == list(LAYERS)


@pytest.mark.parametrize("overview", ["README.md", "docs/index.md"])
def test_an_overview_links_every_page(overview: str) -> None:
    text = page(overview)
    names = {each.name for each in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert not [name for name in sorted(names) if f"{name})" not in text]


def test_every_measurement_has_a_section() -> None:
    sections = re.findall(r"^### ([\w-]+)$", page("docs/benchmarks.md"), re.MULTILINE)
    assert sorted(sections) == sorted(ALL)


def test_pages_name_only_targets_of_make_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", page("Makefile"), re.MULTILINE))
    for each in PAGES:
        named = set(re.findall(r"(?:`|^)make ([a-z-]+)", each.read_text("utf-8"), re.MULTILINE))
        assert named <= targets, each.name


def test_contributing_names_every_target_of_make() -> None:
    targets = set(re.findall(r"^([a-z-]+):", page("Makefile"), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)", page("CONTRIBUTING.md")))
    assert named == targets - {"help", "install"}


def test_a_page_names_only_options_that_exist() -> None:
    options = {word for _, command in commands() for p in command.params for word in p.opts}
    for each in PAGES:
        named = set(OPTION.findall(each.read_text("utf-8")))
        assert named <= options | FOREIGN_OPTIONS, each.name


@pytest.mark.parametrize("name", ["cluster", "operations", "storage"])
def test_a_page_about_brokers_names_only_settings_that_exist(name: str) -> None:
    known = {*definitions(BrokerSettings), *definitions(LogConfig)}
    named = re.findall(r"`([a-z]+(?:\.[a-z]+)+)(?:=[^`]*)?`", page(f"docs/{name}.md"))
    assert set(named) <= known | FOREIGN_SETTINGS


def test_the_files_that_a_page_names_exist() -> None:
    for each in PAGES:
        named = PATH.findall(each.read_text("utf-8"))
        assert not [path for path in named if not (ROOT / path).exists()], each.name


def log_formats() -> Iterator[str]:
    """The text of every call of a logger in the package, with its placeholders."""
    for file in (ROOT / "src" / "moldau").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                yield str(node.args[0].value)


def test_the_log_lines_that_a_page_quotes_are_written_like_that() -> None:
    placeholder = re.compile(r"%[-.\d]*[sdrfgx]")
    patterns = [
        re.compile(".*".join(map(re.escape, placeholder.split(text))))
        for text in log_formats()
        if len(placeholder.sub("", text).split()) > 3
    ]
    quoted = [line for each in PAGES for line in LOGGED.findall(each.read_text("utf-8"))]
    quoted += re.findall(r"`(closed \d+ more connections [^`]+)`", page("docs/operations.md"))
    assert len(quoted) > 4
    for line in quoted:
        assert any(pattern.fullmatch(line) for pattern in patterns), line


def test_the_functions_that_the_quoted_stall_names_exist() -> None:
    [line] = [line for line in LOGGED.findall(page("docs/operations.md")) if "was blocked" in line]
    names = re.findall(r"\bbroker(?:\.\w+)+", line)
    assert len(names) == 2
    for name in names:
        words = name.split(".")
        count = next(n for n in range(len(words)) if not words[n].islower() or n == len(words) - 1)
        found: object = importlib.import_module(".".join(["moldau", *words[:count]]))
        for word in words[count:]:
            found = getattr(found, word)
        assert callable(found)


def test_the_methods_that_pages_list_exist() -> None:
    admin = section(page("docs/client.md"), "Topics, settings, groups").partition("| about |")[2]
    assert not [name for name in re.findall(r"`([a-z_]+)`", admin) if missing(Admin, name)]
    cluster = section(page("docs/cluster.md"), "In tests").partition("There are also")[2]
    assert not [name for name in re.findall(r"`([a-z_]+)`", cluster) if missing(Cluster, name)]


def missing(owner: type, name: str) -> bool:
    return not hasattr(owner, name) and name not in ("code", "name", "lag", "seconds")


def test_the_readme_names_the_kafka_that_was_measured() -> None:
    measured = re.search(r"^- Apache Kafka: (\d+\.\d+)", page("bench/RESULTS.md"), re.MULTILINE)
    assert measured is not None
    assert f"Apache Kafka {measured[1]}" in page("README.md")


def test_the_page_on_kafka_names_the_version_that_is_fetched() -> None:
    wanted = ".".join(KAFKA_VERSION.split(".")[:2])
    assert f"fetch Kafka {wanted}" in " ".join(page("docs/kafka.md").split())
