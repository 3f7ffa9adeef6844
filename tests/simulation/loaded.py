"""Everything that a simulation uses, loaded: what is imported in a process before others are forked
from it, they need not import again.
"""

from __future__ import annotations

import tests.simulation.scenario.play  # noqa: F401
from tests.simulation.core.world import load_everything

load_everything()
