"""The build of the console's page, as far as it works without Node."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tools import console, release

SOURCES = Path(__file__).parents[3] / "console"


@pytest.mark.parametrize("version", ["v20.19.0\n", "v20.20.2\n", "v22.12.0\n", "v24.0.0\n"])
def test_a_node_that_vite_takes_is_used(version: str) -> None:
    assert console.is_new_enough(version)


@pytest.mark.parametrize(
    "version", ["v18.20.1\n", "v20.18.9\n", "v21.9.0\n", "v22.11.0\n", "", "?"]
)
def test_an_older_node_is_not_used(version: str) -> None:
    assert not console.is_new_enough(version)


def _fail(root: Path) -> None:
    raise console.NotBuilt("npm ci failed: no route to the registry")


def test_without_npm_the_build_says_what_is_missing_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "build", _fail)
    stamp = tmp_path / "stamp"

    assert console.main(["--stamp", str(stamp)]) == 0

    assert "no route to the registry" in capsys.readouterr().err
    # Older than any source, so that make comes back to it.
    assert stamp.stat().st_mtime == 0


def test_a_strict_build_fails_without_npm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(console, "build", _fail)

    assert console.main(["--strict", "--stamp", str(tmp_path / "stamp")]) == 1

    assert not (tmp_path / "stamp").exists()


def test_the_lock_file_names_no_registry_and_has_the_packages_of_every_platform() -> None:
    packages = json.loads((SOURCES / "package-lock.json").read_text("utf-8"))["packages"]

    assert not [name for name, package in packages.items() if "resolved" in package]
    named = {name.rpartition("node_modules/")[2] for name in packages}
    optional = {
        each for package in packages.values() for each in package.get("optionalDependencies", {})
    }
    assert optional - named == set()


def test_a_release_without_the_page_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "moldau-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("moldau/console/__init__.py", "")
    with pytest.raises(release.NotReleased, match="lacks the console's page"):
        release.check_page(wheel)

    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("moldau/console/page/index.html", "")
        archive.writestr("moldau/console/page/assets/index.js", "")
    release.check_page(wheel)
