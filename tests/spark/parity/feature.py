"""Features: what a connector may be able to do, each tried by the same code on both."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from tests.spark.parity.scene import Scene

Trial = Callable[[Scene], str]
WORKS = "works"
# Spark gives a Python process ten seconds to start, whatever else the machine has to do; that this
# one took longer says nothing about the feature.
TOO_BUSY = "Python worker failed to connect back"
TRIES = 4


@dataclass(frozen=True, slots=True)
class Feature:
    """A trial with the name of its row.

    `refusals` says in short what an error means, by a pattern of its message; any other error is
    one of the suite. With `denied`, it is Spark that keeps connectors in Python from it; `note`
    says what there is instead.
    """

    name: str
    trial: Trial
    refusals: Mapping[str, str]
    denied: bool
    note: str

    def outcome(self, scene: Scene) -> str:
        for tries_left in reversed(range(TRIES)):
            try:
                return self.trial(scene)
            except (PySparkException, Py4JJavaError) as problem:
                said = str(problem)
                if TOO_BUSY in said and tries_left:
                    continue
                for pattern, meaning in self.refusals.items():
                    if re.search(pattern, said):
                        return meaning
                raise
        raise AssertionError("the last try has an outcome or an error")


@dataclass(frozen=True, slots=True)
class Part:
    """The features of one table, in its order."""

    title: str
    features: list[Feature] = field(default_factory=list)

    def feature(
        self,
        name: str,
        refusals: Mapping[str, str] | None = None,
        *,
        denied: bool = False,
        note: str = "",
    ) -> Callable[[Trial], Trial]:
        def keep(trial: Trial) -> Trial:
            self.features.append(Feature(name, trial, refusals or {}, denied, note))
            return trial

        return keep


def as_expected(found: Any, expected: Any) -> str:
    return WORKS if found == expected else f"{found} instead of {expected}"
