"""Each simulation in a process of its own, forked from one that has all modules loaded.

It exchanges `os`, `time` and more in Moldau's modules, which a real broker that other tests share,
in a thread of this process, must not see. None of them is ever skipped: whoever tries to, fails.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest

_WITHIN_S = 390.0
# The one whose tests need the real ensemble and no simulated broker.
_HERE = "test_zookeeper"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    if pyfuncitem.module.__name__.endswith(_HERE):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.simulation.loaded"])
    here, there = context.Pipe()
    child = context.Process(target=_run, args=(there, pyfuncitem.obj, arguments))
    child.start()
    there.close()
    try:
        problem = here.recv() if here.poll(_WITHIN_S) else f"not done within {_WITHIN_S:g} s"
    except EOFError:
        child.join(10.0)
        problem = f"the process died with status {child.exitcode}"
    finally:
        child.kill()
        child.join()
    if problem is not None:
        pytest.fail(problem, pytrace=False)
    return True


def _run(connection: Connection, test: Callable[..., None], arguments: dict[str, Any]) -> None:
    try:
        test(**arguments)
    except BaseException:
        connection.send(traceback.format_exc())
    else:
        connection.send(None)
