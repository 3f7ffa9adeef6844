"""What several parts' tests share. The broker comes from our own plugin, as a user would get it."""

from __future__ import annotations

import os
import signal

import hypothesis

# One slow moment of a busy machine is no failure; the number of examples is what bounds a run.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure() -> None:
    """Take Ctrl-C although we may run in the background of a script, which ignores it: the programs
    that tests start, and end by Ctrl-C, would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
