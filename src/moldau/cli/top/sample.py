"""Samples: what one broker shows of itself at one moment, and what changed between two."""

from __future__ import annotations

import base64
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from moldau.security.client import ClientSecurity

_LINE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
WITHIN_S = 5.0

Labels = dict[str, str]


class Unreachable(Exception):
    """A broker does not show anything; the message says why."""


@dataclass(slots=True)
class Sample:
    """The series of one broker, by name."""

    at: float
    series: dict[str, list[tuple[Labels, float]]] = field(default_factory=dict)

    def all(self, name: str) -> Iterator[tuple[Labels, float]]:
        yield from self.series.get(name, ())

    def value(self, name: str, **labels: str) -> float:
        """Return the one value with exactly these labels; 0 if there is none."""
        return next((value for has, value in self.all(name) if has == labels), 0.0)

    def info(self, name: str) -> Labels:
        """Return the labels of the first series."""
        return next((labels for labels, _ in self.all(name)), {})

    def rate(self, before: Sample | None, name: str, **labels: str) -> float:
        """Return how much a counter has grown a second; one that began again has grown from 0."""
        if before is None or self.at <= before.at:
            return 0.0
        now, then = self.value(name, **labels), before.value(name, **labels)
        return (now - then if now >= then else now) / (self.at - before.at)

    def total_rate(self, before: Sample | None, name: str) -> float:
        """Return the same, of all series of a name together."""
        return sum(self.rate(before, name, **labels) for labels, _ in self.all(name))

    def quantile_ms(self, before: Sample | None, api: str, share: float) -> float | None:
        """Return the latency of an API since the sample before; None if nobody asked for it."""
        bounds = self._buckets(api)
        then = {} if before is None else before._buckets(api)
        counts = [(bound, count - then.get(bound, 0.0)) for bound, count in bounds.items()]
        total = counts[-1][1] if counts else 0.0
        if total <= 0:
            return None
        below, lower = 0.0, 0.0
        for bound, count in counts:
            if count >= share * total:
                if bound == float("inf"):
                    return lower * 1000
                part = (share * total - below) / (count - below) if count > below else 1.0
                return (lower + (bound - lower) * part) * 1000
            below, lower = count, bound
        return None

    def _buckets(self, api: str) -> dict[float, float]:
        return {
            float(labels["le"]): value
            for labels, value in self.all("moldau_request_seconds_bucket")
            if labels["api"] == api
        }


def parse(text: str, at: float) -> Sample:
    """Read the text format of Prometheus; lines that are no samples are passed over."""
    sample = Sample(at)
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is not None:
            name, inner, number = found.groups()
            try:
                value = float(number)
            except ValueError:
                continue
            labels = {key: _unescaped(text) for key, text in _LABEL.findall(inner or "")}
            sample.series.setdefault(name, []).append((labels, value))
    return sample


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda each: "\n" if each[1] == "n" else each[1], text)


def take(url: str, security: ClientSecurity | None = None, login: str = "") -> Sample:
    """Ask a broker, with this USER:PASSWORD or that of `security`, which also says whom to
    trust."""
    parts = urlsplit(url)
    request = urllib.request.Request(f"{parts.scheme}://{parts.netloc}/metrics?per_partition=false")
    context = None
    if security is not None:
        context = security.context()
        login = login or security.http_login(url)
    if login:
        encoded = base64.b64encode(login.encode()).decode()
        request.add_header("Authorization", f"Basic {encoded}")
    try:
        with urllib.request.urlopen(request, timeout=WITHIN_S, context=context) as answer:
            text = answer.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as problem:
        raise Unreachable(f"it answered with status {problem.code}") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "reason", problem)
        raise Unreachable(str(getattr(reason, "strerror", None) or reason).lower()) from None
    return parse(text, time.monotonic())
