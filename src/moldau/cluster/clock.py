"""The clock of leases: it goes on while the machine is suspended."""

from __future__ import annotations

import time
from functools import partial

# CLOCK_MONOTONIC stands still in a suspended Linux machine, and counts sleep on macOS, which has no
# CLOCK_BOOTTIME.
CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

# Seconds.
now = partial(time.clock_gettime, CLOCK)
