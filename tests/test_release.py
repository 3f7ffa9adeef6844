"""The release: what it refuses before it builds anything."""

from __future__ import annotations

import pytest

from tools.release import NotReleased, check_changelog


def test_a_changelog_that_begins_with_the_version_is_released() -> None:
    check_changelog("# Changes\n\n## 0.2.0\n\n- new\n\n## 0.1.0\n", "0.2.0")


@pytest.mark.parametrize(
    "text",
    [
        "# Changes\n",
        "# Changes\n\n## Unreleased\n\n- new\n\n## 0.2.0\n",
        "# Changes\n\n## 0.2.0 (unreleased)\n\n- new\n",
        "# Changes\n\n## 0.2.01\n\n- new\n",
    ],
)
def test_a_changelog_that_has_something_unreleased_is_refused(text: str) -> None:
    with pytest.raises(NotReleased, match=r"must begin with '## 0\.2\.0'"):
        check_changelog(text, "0.2.0")
