"""The priority of the processes that search: whom they give way to, as the kernel says."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path

import pytest

from moldau.console.search.priority import NICENESS, SLICE_NS
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.console.consoles import RunningConsole

pytest.importorskip("duckdb")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these")

_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}
_SIZE = 48


def _slice_ns(process: int) -> int:
    """Return the slice of a process as the kernel has it; 0 before Linux 6.12."""
    found = ctypes.create_string_buffer(_SIZE)
    number = ctypes.c_long(_SCHED_GETATTR[os.uname().machine])
    assert ctypes.CDLL(None).syscall(number, process, found, _SIZE, 0) == 0
    return int(struct.unpack_from("=Q", found.raw, 24)[0])


def _kernel() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(filter(str.isdigit, minor)))


@pytest.fixture(scope="module")
def worker(console: RunningConsole, shared_broker: Broker) -> int:
    """A process that has given way, and waits for somebody to search."""
    shared_broker.create_topic("given-way", 1)
    console.post("api/searches/ready", {"topic": "given-way"})
    found = console.console.searches.spare.process
    assert found is not None
    # The tests may be nice themselves.
    niceness = min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
    until(lambda: os.getpriority(os.PRIO_PROCESS, found.pid) == niceness, "it is nice")
    return found.pid


def test_a_search_is_nice_to_brokers_of_other_sessions(worker: int) -> None:
    assert os.getsid(worker) == worker
    group = Path(f"/proc/{worker}/autogroup")
    if not group.exists() or not group.read_text("ascii"):
        pytest.skip("this kernel knows no autogroups")
    until(lambda: group.read_text("ascii").endswith(f" nice {NICENESS}\n"), "its session is, too")


def test_a_broker_need_not_wait_until_the_slice_of_a_search_is_over(worker: int) -> None:
    if _kernel() < (6, 12):
        pytest.skip("no process chooses its slice before Linux 6.12")
    until(lambda: _slice_ns(worker) == SLICE_NS, "its slice is longer than those of others")
