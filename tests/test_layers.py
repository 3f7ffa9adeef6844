"""Parts import only from parts below them, and a starting broker imports no more than it needs."""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import moldau
from moldau.broker.api.catalog import AT_START
from moldau.broker.api.catalog import MODULES as API_MODULES
from tests.processes import started

PACKAGE = Path(moldau.__file__).parent

# Bottom up, as in docs/index.md: a part may import from its own row and from earlier ones.
LAYERS = (
    "settings",
    "topic_partition",
    "records",
    "log",
    "wire",
    "security",
    "peer",
    "arrow",
    "cluster",
    "broker",
    "client",
    "schemas",
    "console",
    "http",
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
    "sharing",
    "membership",
    "upkeep",
    "api",
    "server",
    "process",
)
# A room that lies beside the others, and so below them.
BESIDE = ("settings",)
# `python -m moldau` is the command line under another name.
TOP = ("__main__",)
# What the package itself offers as its own: for type checkers, and imported on first use.
OFFERED = ("client",)

# Examples come with the package, as programs that import it.
MODULES = sorted(
    path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "examples"
)

Import = ast.Import | ast.ImportFrom


@functools.cache
def import_statements(path: Path) -> tuple[Import, ...]:
    """Every import of a file, also inside functions and for type checking."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return tuple(node for node in ast.walk(tree) if isinstance(node, Import))


def part_of(module: str) -> str:
    """The part that `moldau.log.segments.segment` belongs to: log."""
    return module.split(".")[1] if "." in module else ""


def name_of(path: Path) -> str:
    words = ("moldau", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def imports_of(path: Path) -> set[str]:
    """Every module of ours that a file imports."""
    found: set[str] = set()
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        else:
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, base] if base else parent)
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names if base == "moldau")
    return {name for name in found if name.split(".")[0] == "moldau"}


def test_a_module_imports_only_from_its_own_part_and_parts_below() -> None:
    above = {name_of(path): imports_from_above(path) for path in MODULES}
    assert not {name: imports for name, imports in above.items() if imports}


def imports_from_above(path: Path) -> list[str]:
    part = part_of(name_of(path))
    if part in TOP:
        return []
    allowed = {"", "__version__", *LAYERS[: LAYERS.index(part) + 1]} if part else {"", *OFFERED}
    return sorted(name for name in imports_of(path) if part_of(name) not in allowed)


def test_every_part_has_its_place_in_the_order() -> None:
    parts = {part_of(name_of(path)) for path in MODULES} - {"", *TOP}
    assert parts <= set(LAYERS)


def height_in_broker(module: str) -> int | None:
    """How high up in the broker a module lies; None if it is no part of it."""
    words = module.split(".")
    if words[:2] != ["moldau", "broker"]:
        return None
    return ROOMS.index(words[2]) + 1 if len(words) > 2 and words[2] in ROOMS else 0


def test_a_module_of_the_broker_imports_only_from_its_own_room_and_rooms_below() -> None:
    above: dict[str, list[str]] = {}
    for path in MODULES:
        height = height_in_broker(name_of(path))
        if height is not None:
            imports = [name for name in imports_of(path) if (height_in_broker(name) or 0) > height]
            above[name_of(path)] = sorted(imports)
    assert not {name: imports for name, imports in above.items() if imports}


def test_every_room_of_the_broker_has_its_place_in_the_order() -> None:
    rooms = {path.parent.name for path in (PACKAGE / "broker").glob("*/__init__.py")}
    assert rooms == {*ROOMS, *BESIDE} - {"server", "process"}


def modules_imported_by(path: Path, names: set[str]) -> set[str]:
    """The modules of ours, out of all their names, behind the names that a file imports."""
    found: set[str] = set()
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in names else node.module or "")
    return found & names - {name_of(path)}


def test_no_module_imports_itself_by_way_of_others() -> None:
    names = {name_of(each) for each in MODULES}
    graph = {name_of(each): modules_imported_by(each, names) for each in MODULES}
    order = graphlib.TopologicalSorter(graph)
    try:
        order.prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"these import each other: {' <- '.join(error.args[1])}")


NOT_FOR_A_BROKER = frozenset(
    (
        *("confluent_kafka", "hypothesis", "kazoo", "prometheus_client", "pyarrow", "pydantic"),
        *("rich", "starlette", "typer", "uvicorn"),
    )
)


# The rooms of what a broker may never see, by a module that whoever imports the room imports.
WHEN_NEEDED = (
    "moldau.broker.coordination.groups.consumer.group",
    "moldau.broker.coordination.groups.share.group",
    "moldau.broker.coordination.share.coordinator",
    "moldau.broker.coordination.transactions.machine",
    "moldau.broker.sharing.shares",
)


# Runs the command line, and then tells on stderr which modules have been imported.
TELLING = """
import atexit, sys
tell = lambda: [print("imported", name, file=sys.stderr) for name in list(sys.modules)]
atexit.register(tell)
from moldau.cli import main
sys.exit(main())
"""


def test_a_broker_process_imports_no_more_than_it_needs_to_serve(tmp_path: Path) -> None:
    command = ["broker", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    with started(
        [sys.executable, "-c", TELLING, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert ready.startswith("moldau broker 0 ready on 127.0.0.1:"), errors
    lines = [line for line in errors.splitlines() if line.startswith("imported ")]
    imported = {line.removeprefix("imported ") for line in lines}
    assert {"asyncio", "moldau.broker.api.records.produce"} <= imported
    assert not {name.split(".")[0] for name in imported} & NOT_FOR_A_BROKER
    later = {f"moldau.broker.api.{name}" for name in API_MODULES if name not in AT_START}
    assert not imported & {*later, *WHEN_NEEDED}
