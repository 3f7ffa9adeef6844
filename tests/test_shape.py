"""The shape of the tree: no file and no folder grows too large, and each module says what it is."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_MOST_LINES = 400
_MOST_MODULES = 20
# One state machine, which reads better whole.
_LONG = {"tests/log/test_log_model.py"}
# A docstring opens with the noun that it is about.
_QUESTIONS = ("What", "How", "Where", "When", "Why", "Which", "Who", "Whose", "Whether", "Whatever")


@pytest.fixture(scope="module")
def modules() -> list[str]:
    shown = ["git", "ls-files", "src", "tests", "bench", "conformance", "tools"]
    try:
        listed = subprocess.run(shown, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no clone")
    found = [name for name in listed.splitlines() if name.endswith(".py")]
    return [name for name in found if (ROOT / name).exists()]


def test_no_module_is_too_long(modules: list[str]) -> None:
    lines = {name: (ROOT / name).read_text("utf-8").count("\n") for name in modules}
    too_long = {name for name, count in lines.items() if count > _MOST_LINES}
    assert too_long == _LONG


def test_no_folder_has_too_many_modules(modules: list[str]) -> None:
    counts = Counter(Path(name).parent for name in modules if not name.endswith("__init__.py"))
    assert [folder for folder, count in counts.items() if count > _MOST_MODULES] == []


def test_module_docstrings_open_with_a_noun(modules: list[str]) -> None:
    opened = {}
    for name in modules:
        docstring = ast.get_docstring(ast.parse((ROOT / name).read_text("utf-8"))) or ""
        if docstring.split(" ")[0] in _QUESTIONS:
            opened[name] = docstring.splitlines()[0]
    assert opened == {}


def test_every_package_says_what_lives_in_it(modules: list[str]) -> None:
    packages = [name for name in modules if name.endswith("__init__.py") and name[:3] == "src"]
    silent = [
        name for name in packages if not ast.get_docstring(ast.parse((ROOT / name).read_text()))
    ]
    assert silent == []
