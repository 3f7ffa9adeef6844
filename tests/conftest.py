"""Fixtures of several parts. The broker comes from our own plugin, as a user would get it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from moldau.testing import Ensemble
from tests.clean_tree import tree
from tests.ensemble import EnsembleKeeper, running_ensemble
from tests.hangs import pytest_runtest_protocol
from tests.queues import in_order
from tests.spark.class_archive import quick_java

__all__ = ["pytest_runtest_protocol"]

# One slow moment of a busy machine is no failure; the number of examples is what bounds a run.
# Everybody's run tries the same examples, so that a change is what breaks it; `make fuzz` tries
# others, and more.
hypothesis.settings.register_profile("default", deadline=None, derandomize=True)
hypothesis.settings.register_profile("many", deadline=None, derandomize=True, max_examples=1000)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

NO_ZOOKEEPER = find_spec("pyspark") is None

_tree = pytest.StashKey[set[str]]()
_keeper = pytest.StashKey[EnsembleKeeper]()


def pytest_configure(config: pytest.Config) -> None:
    """Set what the programs that tests start inherit."""
    # In the background of a script Ctrl-C is ignored; tests end programs by it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", quick_java())
    if hasattr(config, "workerinput") and config.args == ["tests"]:
        number = int(config.workerinput["workerid"].removeprefix("gw"))
        config.args = folders_from(number / config.workerinput["workercount"])


def folders_from(part: float) -> list[str]:
    """All folders of tests, beginning after so large a part of their files.

    Each worker of xdist begins with another one, so that it finds most files compiled by others.
    """
    here = Path(__file__).parent
    entries = sorted({*here.glob("test_*.py"), *here.glob("[a-z]*/")})
    files = [len([path, *path.rglob("test_*.py")]) for path in entries]
    first = sum(count <= part * sum(files) for count in accumulate(files))
    return [str(path) for path in entries[first:] + entries[:first]]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort what is left to run: for one of several workers, or for one that runs them all."""
    items[:] = in_order(items, getattr(config, "workerinput", {}).get("workercount", 1))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist, about to be started, where an ensemble is to be had."""
    stash = node.config.stash
    if _keeper not in stash:
        stash[_keeper] = EnsembleKeeper()
    node.workerinput["ensemble"] = stash[_keeper].address


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.stash[_tree] = tree()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where tests have left something beside the sources: they have folders of their own."""
    if _tree not in session.config.stash:
        return
    before = session.config.stash[_tree]
    left = sorted(tree() - before)
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"\nthe tests have left behind: {', '.join(left)}", red=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _keeper in config.stash:
        config.stash[_keeper].close()


@pytest.fixture(scope="session")
def ensemble(request: pytest.FixtureRequest) -> Iterator[Ensemble]:
    """A ZooKeeper ensemble of one server for all tests: take a chroot of your own, and break
    nothing."""
    if NO_ZOOKEEPER:
        pytest.skip("no clusters without pyspark, which brings ZooKeeper")
    worker = getattr(request.config, "workerinput", {})
    with running_ensemble(worker.get("ensemble")) as ensemble:
        yield ensemble
