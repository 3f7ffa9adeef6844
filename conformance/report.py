"""The outcome as a table and a list."""

from __future__ import annotations

import re
from collections.abc import Iterator

from conformance.deliberate import DELIBERATE
from conformance.runner import Finding, Verdict

_SHOWN = 700
_NUMBER = re.compile(r"-?\d+")


def lines(verdicts: dict[str, Verdict]) -> Iterator[str]:
    yield from _table(verdicts)
    yield from _deliberate(verdicts)
    findings = [found for verdict in verdicts.values() for found in verdict.unexplained]
    for group in _grouped(findings):
        yield ""
        yield from _described(group)


def _table(verdicts: dict[str, Verdict]) -> Iterator[str]:
    yield "| what | versions | cases | answers | same | deliberate | DIFFERENT |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for name, verdict in verdicts.items():
        known = sorted(verdict.versions - {-1})
        versions = f"{known[0]}-{known[-1]}" if known else ""
        if not verdict.answers:
            versions = "not offered by both"
        counts = (verdict.cases, verdict.answers, verdict.same)
        ends = (len(verdict.deliberate), len(verdict.unexplained) or "")
        yield f"| {name} | {versions} | " + " | ".join(map(str, (*counts, *ends))) + " |"


def _deliberate(verdicts: dict[str, Verdict]) -> Iterator[str]:
    counts: dict[str, int] = {}
    for verdict in verdicts.values():
        for found in verdict.deliberate:
            assert found.deliberate is not None
            counts[found.deliberate.reason] = counts.get(found.deliberate.reason, 0) + 1
    reasons = dict.fromkeys(each.reason for each in DELIBERATE)
    if counts:
        yield ""
        yield "Deliberate differences:"
    for reason in reasons:
        if reason in counts:
            yield f"- {reason} ({counts[reason]} times)"


def unmet(verdicts: dict[str, Verdict]) -> Iterator[str]:
    """The places of deliberate differences in which a run of all cases found none."""
    met = {found.place for verdict in verdicts.values() for found in verdict.deliberate}
    for each in DELIBERATE:
        for place in each.places:
            if place not in met:
                yield f"NOT MET {place}: {each.reason}"


def _grouped(findings: list[Finding]) -> Iterator[list[Finding]]:
    """The same difference in several versions is one to read about."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for found in findings:
        step = found.kafka or found.moldau
        key = (
            found.case.group,
            found.case.name,
            step.what if step else "",
            found.difference.path,
            _NUMBER.sub("#", repr(found.difference.kafka)[:120]),
            _NUMBER.sub("#", repr(found.difference.moldau)[:120]),
        )
        groups.setdefault(key, []).append(found)
    yield from groups.values()


def _described(findings: list[Finding]) -> Iterator[str]:
    found = findings[0]
    step = found.kafka or found.moldau
    assert step is not None
    versions = ", ".join(str(each.version) for each in findings if each.version >= 0)
    at = f" v{versions}" if versions else ""
    yield f"DIFFERENT {found.case.group}{at}: {found.case.label}: {step.what}"
    yield f"  asked:  {_short(step.asked)}"
    yield f"  at:     {found.difference.path or '(the answer)'}"
    yield f"  Kafka:  {_short(found.difference.kafka)}"
    yield f"  Moldau: {_short(found.difference.moldau)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
