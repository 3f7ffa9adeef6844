"""Parts import only from parts below them, and a starting broker imports no more than it needs."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import moldau
from tests.processes import started

PACKAGE = Path(moldau.__file__).parent

# Bottom up, as in docs/index.md: a part may import from its own row and from earlier ones.
LAYERS = (
    "settings",
    "topic_partition",
    "records",
    "log",
    "wire",
    "peer",
    "cluster",
    "broker",
    "client",
    "schemas",
    "spark",
    "local",
    "testing",
    "bench",
    "cli",
)
# The rooms of the broker, bottom up too. What lies beside them is below all of them, but for the
# composition root, which is above.
ROOMS = (
    "security",
    "net",
    "partitions",
    "replication",
    "coordination",
    "membership",
    "upkeep",
    "api",
    "server",
)
# `python -m moldau` is the command line under another name.
TOP = ("__main__",)
# What the package itself offers as its own: for type checkers, and imported on first use.
OFFERED = ("client",)

MODULES = sorted(PACKAGE.rglob("*.py"))


def part_of(module: str) -> str:
    """The part that `moldau.log.segments.segment` belongs to: log."""
    return module.split(".")[1] if "." in module else ""


def name_of(path: Path) -> str:
    words = ("moldau", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def imports_of(path: Path) -> set[str]:
    """Every module of ours that a file imports, also inside functions and for type checking."""
    found: set[str] = set()
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, base] if base else parent)
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names if base == "moldau")
    return {name for name in found if name.split(".")[0] == "moldau"}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_only_from_its_own_part_and_parts_below(path: Path) -> None:
    part = part_of(name_of(path))
    if part in TOP:
        return
    allowed = {"", "__version__", *LAYERS[: LAYERS.index(part) + 1]} if part else {"", *OFFERED}
    above = sorted(name for name in imports_of(path) if part_of(name) not in allowed)
    assert not above, f"{name_of(path)} imports from a part above it: {above}"


def test_every_part_has_its_place_in_the_order() -> None:
    parts = {part_of(name_of(path)) for path in MODULES} - {"", *TOP}
    assert parts <= set(LAYERS)


def height_in_broker(module: str) -> int | None:
    """How high up in the broker a module lies; None if it is no part of it."""
    words = module.split(".")
    if words[:2] != ["moldau", "broker"]:
        return None
    return ROOMS.index(words[2]) + 1 if len(words) > 2 and words[2] in ROOMS else 0


@pytest.mark.parametrize(
    "path", [path for path in MODULES if height_in_broker(name_of(path)) is not None], ids=name_of
)
def test_a_module_of_the_broker_imports_only_from_its_own_room_and_rooms_below(path: Path) -> None:
    height = height_in_broker(name_of(path)) or 0
    above = sorted(name for name in imports_of(path) if (height_in_broker(name) or 0) > height)
    assert not above, f"{name_of(path)} imports from a room above it: {above}"


def test_every_room_of_the_broker_has_its_place_in_the_order() -> None:
    rooms = {path.parent.name for path in (PACKAGE / "broker").glob("*/__init__.py")}
    assert rooms == set(ROOMS) - {"server"}


def modules_imported_by(path: Path) -> set[str]:
    """The modules of ours behind the names that a file imports, for type checking too."""
    names = {name_of(each) for each in MODULES}
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in names else node.module or "")
    return found & names - {name_of(path)}


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {name_of(each): modules_imported_by(each) for each in MODULES}
    order = graphlib.TopologicalSorter(graph)
    try:
        order.prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"these import each other: {' <- '.join(error.args[1])}")


NOT_FOR_A_BROKER = frozenset(
    ("confluent_kafka", "hypothesis", "kazoo", "pyarrow", "pydantic", "rich", "typer")
)


def test_a_broker_process_imports_no_client_and_no_command_line_library(tmp_path: Path) -> None:
    command = ["broker", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    with started(
        [sys.executable, "-X", "importtime", "-m", "moldau", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        process.terminate()
        _, errors = process.communicate(timeout=30)
    assert ready.startswith("moldau broker 0 ready on 127.0.0.1:"), errors
    lines = [line for line in errors.splitlines() if line.startswith("import time:")]
    imported = {line.rpartition("|")[2].strip().split(".")[0] for line in lines}
    assert "asyncio" in imported
    assert not imported & NOT_FOR_A_BROKER
