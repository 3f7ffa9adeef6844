"""The end of a test that hangs where no exception reaches it.

pytest-timeout raises in the main thread, which a call into C does not let it. Some time later the
process that runs the test is ended, with the stacks of its threads on stderr. xdist then tells
which test that was, and goes on with another process.
"""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Generator

import pytest


def deadline_s(item: pytest.Item) -> float:
    """When to end the process: after the test's own time-out, and time to clean up after it."""
    marker = item.get_closest_marker("timeout")
    given = marker.args[0] if marker is not None and marker.args else item.config.getini("timeout")
    return 1.5 * float(given) + 5


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    # Not the stream that pytest captures.
    assert sys.__stderr__ is not None
    faulthandler.dump_traceback_later(deadline_s(item), exit=True, file=sys.__stderr__)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
