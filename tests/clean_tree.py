"""The tree of the repository, to see what a run of the tests leaves in it."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def tree(root: Path = ROOT) -> set[str]:
    """All files that git neither has nor ignores, and all there is at the root.

    Git does not see folders that are empty, such as the one that Spark makes for its tables.
    """
    listed = {path.name for path in root.iterdir() if not path.name.startswith((".", "__"))}
    found = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return listed | set(found.stdout.splitlines())
