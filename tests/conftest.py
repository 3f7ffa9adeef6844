"""What several parts' tests share. The broker comes from our own plugin, as a user would get it."""

from __future__ import annotations

import os

import hypothesis
import pytest

# One slow moment of a busy machine is no failure; the number of examples is what bounds a run.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A test that passed when it was run again is still to be mended: why did it fail at first?"""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.write_sep("-", f"first run of {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
