"""The priority of a worker: the broker and its clients beside it come first.

Being nice is not enough for that, on Linux:

    autogroups   Each session has its share of the processors, and niceness counts only within one.
                 A worker has a session of its own, and that is nice as a whole.
    slices       Who runs keeps the processor for a slice, up to a tick of the clock more, whoever
                 wakes up; only those with shorter slices may cut in. A worker asks for long ones,
                 so that a broker need not wait for it. Before Linux 6.12 there was nothing to ask
                 for.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

NICENESS = 10
SLICE_NS = 20_000_000
AUTOGROUP = Path("/proc/self/autogroup")
# The system call sched_setattr, for which C libraries have no function before glibc 2.41.
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
# struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period.
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
_TRIES = 5
_AGAIN_S = 0.1


def give_way() -> None:
    """Do so for this process, which leads a session, and for the threads that it will start."""
    os.nice(NICENESS)
    # Otherwise others would be nice with us.
    if os.getsid(0) == os.getpid():
        _be_nice_as_session()
    _ask_for_long_slices()


def _be_nice_as_session() -> None:
    for _ in range(_TRIES):
        try:
            AUTOGROUP.write_text(str(NICENESS), "ascii")
        except BlockingIOError:
            # Somebody else on this machine has just done the same: it is one at a time.
            time.sleep(_AGAIN_S)
        except OSError:
            # There are no autogroups, or we may not.
            return
        else:
            return


def _ask_for_long_slices() -> None:
    machine = os.uname().machine
    if sys.platform == "linux" and machine in _SCHED_SETATTR:
        niceness = os.getpriority(os.PRIO_PROCESS, 0)
        wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, niceness, 0, SLICE_NS, 0, 0)
        with suppress(OSError, AttributeError):
            # A system that refuses, as containers may, answers -1, and nothing is lost.
            ctypes.CDLL(None).syscall(ctypes.c_long(_SCHED_SETATTR[machine]), 0, wanted, 0)
