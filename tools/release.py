"""`make release`: a versioned sdist and wheel in dist/, built reproducibly and tried alone.

What is committed is built twice, in two folders, with the time of the commit; the results must be
the same, byte for byte. Then each is installed into an environment of its own, without this clone,
where the README's first session must print what the README shows.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tests.pages import Command, Shell, Wrong, steps_of
from tools.console import PAGE

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
# Behind the first session the README goes on with programs, clusters and Spark.
FIRST_SESSION_ENDS = "\n## In your programs\n"
BUILD_WITHIN_S = 300
INSTALL_WITHIN_S = 600


class NotReleased(Exception):
    """Why there is no release."""


def main() -> int:
    try:
        _release()
    except NotReleased as problem:
        _say(f"no release: {problem}")
        return 1
    return 0


def _release() -> None:
    version = _version()
    with tempfile.TemporaryDirectory(prefix="moldau-release-") as temporary:
        folder = Path(temporary)
        _say(f"building moldau {version} twice")
        first, second = _built(folder / "first"), _built(folder / "second")
        if first.keys() != second.keys():
            raise NotReleased(f"the builds made {sorted(first)} and {sorted(second)}")
        for name in first:
            if _digest(first[name]) != _digest(second[name]):
                raise NotReleased(f"{name} is not the same when it is built again")
        for name, path in sorted(first.items()):
            _say(f"trying {name} alone")
            _try_alone(path, folder / f"try-{path.suffix[1:]}")
        DIST.mkdir(exist_ok=True)
        for old in DIST.iterdir():
            old.unlink()
        for path in first.values():
            shutil.copyfile(path, DIST / path.name)
        lines = [f"{_digest(path)}  {name}\n" for name, path in sorted(first.items())]
        (DIST / "SHA256SUMS").write_text("".join(lines))
    _say(f"dist/ holds moldau {version}: {', '.join(sorted(first))}, SHA256SUMS")


def _version() -> str:
    """The version to release; it is committed whole, and the changelog tells about it."""
    dirty = _run(["git", "status", "--porcelain"], ROOT)
    if dirty:
        raise NotReleased(f"commit first, a release is what is committed:\n{dirty.rstrip()}")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    version = str(project["version"])
    check_changelog((ROOT / "CHANGELOG.md").read_text("utf-8"), version)
    return version


def check_changelog(text: str, version: str) -> None:
    """Refuse a changelog that does not begin with this version, as what is released now."""
    first = next((line for line in text.splitlines() if line.startswith("## ")), "")
    if first.removeprefix("## ").split() != [version]:
        raise NotReleased(
            f"CHANGELOG.md must begin with '## {version}', which has everything since the version "
            f"before; it begins with '{first}'"
        )


def _built(folder: Path) -> dict[str, Path]:
    """The sdist and the wheel of what is committed, by their names."""
    source, made = folder / "source", folder / "made"
    source.mkdir(parents=True)
    archive = folder / "source.tar"
    _run(["git", "archive", "--output", str(archive), "HEAD"], ROOT)
    _run(["tar", "-xf", str(archive)], source)
    # Not committed, and part of what is released: built from what is committed.
    _run([sys.executable, "-m", "tools.console", "--strict"], source, within_s=BUILD_WITHIN_S * 2)
    commit_time = _run(["git", "log", "-1", "--format=%ct"], ROOT).strip()
    _run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(made)],
        source,
        {"SOURCE_DATE_EPOCH": commit_time},
        BUILD_WITHIN_S,
    )
    packages = {path.name: path for path in made.iterdir()}
    for path in packages.values():
        check_page(path)
    return packages


def check_page(package: Path) -> None:
    """Refuse a package without the page of the console."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            names = wheel.namelist()
    else:
        with tarfile.open(package) as sdist:
            names = sdist.getnames()
    for wanted in ("index.html", "assets/"):
        if not any(f"moldau/{PAGE.relative_to('src/moldau')}/{wanted}" in name for name in names):
            raise NotReleased(f"{package.name} lacks the console's page: {PAGE / wanted}")


def _try_alone(package: Path, folder: Path) -> None:
    folder.mkdir()
    _run([sys.executable, "-m", "venv", "environment"], folder, within_s=INSTALL_WITHIN_S)
    bin_folder = folder / "environment" / "bin"
    pip = [str(bin_folder / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    constraints = str(ROOT / "constraints.txt")
    _run([*pip, "-c", constraints, str(package)], folder, within_s=INSTALL_WITHIN_S)
    page, _, _ = (ROOT / "README.md").read_text("utf-8").partition(FIRST_SESSION_ENDS)
    steps = [step for step in steps_of(page) if isinstance(step, Command)]
    if not any(step.output for step in steps):
        raise NotReleased("the README's first session was not found")
    session = folder / "session"
    session.mkdir()
    with (folder / "broker.log").open("w+") as log:
        shell = Shell(session, bin_folder, log)
        shell.environment.pop("PYTHONPATH", None)
        try:
            for step in steps:
                shell.do(step)
        except Wrong as problem:
            raise NotReleased(f"{package.name} is not what the README shows:\n{problem}") from None
        finally:
            shell.close()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(
    words: Sequence[str],
    folder: Path,
    more: dict[str, str] | None = None,
    within_s: float = 60,
) -> str:
    done = subprocess.run(
        words,
        cwd=folder,
        env=os.environ | (more or {}),
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    if done.returncode != 0:
        raise NotReleased(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
