"""The runner: runs the cases on both brokers at once and compares what they recorded."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from conformance.deliberate import Deliberate, Place, explanation
from conformance.registry import Case
from conformance.session import Broker, Session, Step
from conformance.values import Difference, differences


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference: where, what each broker said, and the reason if there is one."""

    case: Case
    version: int
    kafka: Step | None
    moldau: Step | None
    difference: Difference
    deliberate: Deliberate | None
    place: Place | None


@dataclass(slots=True)
class Verdict:
    """What the comparison of one group of cases came to."""

    cases: int = 0
    versions: set[int] = field(default_factory=set)
    answers: int = 0
    same: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def deliberate(self) -> list[Finding]:
        return [each for each in self.findings if each.deliberate is not None]

    @property
    def unexplained(self) -> list[Finding]:
        return [each for each in self.findings if each.deliberate is None]


def shared_versions(kafka: Broker, moldau: Broker) -> dict[int, tuple[int, int]]:
    """The ranges that both offer."""
    found = {}
    for api in kafka.versions.keys() & moldau.versions.keys():
        first = max(kafka.versions[api][0], moldau.versions[api][0])
        last = min(kafka.versions[api][1], moldau.versions[api][1])
        if first <= last:
            found[api] = (first, last)
    return found


def run(
    cases: Iterable[Case],
    kafka: Broker,
    moldau: Broker,
    say: Callable[[str], None],
) -> dict[str, Verdict]:
    """The verdict on every group."""
    verdicts: dict[str, Verdict] = {}
    offered = shared_versions(kafka, moldau)
    # Recent, so that no retention touches it; the same for all, so that all bytes are the same.
    now_ms = time.time_ns() // 1_000_000
    with ThreadPoolExecutor(2) as pool:
        for case in cases:
            verdict = verdicts.setdefault(case.group, Verdict())
            versions = case.versions(offered)
            verdict.cases += bool(versions)
            started = time.monotonic()
            for version in versions:
                sides = pool.map(lambda b: _record(b, case, version, now_ms), (kafka, moldau))  # noqa: B023
                one, other = sides
                verdict.versions.add(version)
                _compare(verdict, case, version, one, other)
            say(f"{case.group}: {case.label} ({time.monotonic() - started:.1f} s)")
    return verdicts


def _record(broker: Broker, case: Case, version: int, now_ms: int) -> list[Step]:
    scope = f"{case.group.lower().replace(' ', '-')}-{case.name[:40]}-{version}"
    session = Session(broker, scope.replace("--1", ""), now_ms)
    try:
        case.script(session, version)
    except Exception as problem:
        place = traceback.extract_tb(problem.__traceback__)
        where = next((f for f in reversed(place) if "/cases/" in f.filename), place[-1])
        text = f"{type(problem).__name__}: {problem} (line {where.lineno})"
        session.steps.append(Step("the script failed", case.api, None, text[:1500]))
    finally:
        session.close()
    return session.steps


def _compare(
    verdict: Verdict, case: Case, version: int, kafka: list[Step], moldau: list[Step]
) -> None:
    for place in range(max(len(kafka), len(moldau))):
        one = kafka[place] if place < len(kafka) else None
        other = moldau[place] if place < len(moldau) else None
        verdict.answers += 1
        found = _differences(one, other)
        verdict.same += not found
        what = (one or other or Step("", None, None, None)).what
        for difference in found:
            reason, where = explanation(case.group, case.name, what, difference) or (None, None)
            verdict.findings.append(Finding(case, version, one, other, difference, reason, where))


def _differences(kafka: Step | None, moldau: Step | None) -> list[Difference]:
    if kafka is None or moldau is None or kafka.what != moldau.what:
        missing = "(no such step)"
        return [
            Difference(
                "",
                missing if kafka is None else f"{kafka.what}: {kafka.answer}",
                missing if moldau is None else f"{moldau.what}: {moldau.answer}",
            )
        ]
    found = list(differences(kafka.answer, moldau.answer))
    if not found and kafka.what == "the script failed":
        found = [Difference("", kafka.answer, moldau.answer)]
    return found
