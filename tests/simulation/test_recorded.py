"""Recorded histories: the simulator does the same on another machine as where it was recorded."""

from __future__ import annotations

from tests.simulation.report.recorded import of_the_simulator, recorded


def test_the_simulator_does_the_same_as_on_another_machine() -> None:
    assert of_the_simulator() == recorded()["simulator"]
