"""Scrapes of a broker, read by Prometheus' own parsers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
from prometheus_client.openmetrics import parser as open_metrics
from prometheus_client.parser import text_string_to_metric_families

OPEN_METRICS = "application/openmetrics-text"


@dataclass(frozen=True)
class Sample:
    name: str
    labels: dict[str, str]
    value: float


class Scrape:
    """All samples of one scrape."""

    def __init__(self, url: str, *, is_open: bool = False, per_partition: bool = True) -> None:
        answer = httpx.get(
            f"{url}/metrics",
            params={} if per_partition else {"per_partition": "false"},
            headers={"accept": OPEN_METRICS} if is_open else {},
            timeout=30,
        )
        assert answer.status_code == 200, answer.text
        self.content_type = answer.headers["content-type"]
        self.text = answer.text
        read = (
            open_metrics.text_string_to_metric_families
            if is_open
            else text_string_to_metric_families
        )
        self.families = list(read(answer.text))
        self.samples = [
            Sample(each.name, each.labels, each.value)
            for family in self.families
            for each in family.samples
        ]

    def find(self, name: str, **labels: str) -> Iterator[Sample]:
        """The samples of this name that have at least these labels."""
        for each in self.samples:
            if each.name == name and labels.items() <= each.labels.items():
                yield each

    def value(self, name: str, **labels: str) -> float:
        """The value of the one sample of this name with exactly these labels; 0 if there is
        none."""
        found = [each.value for each in self.find(name, **labels) if each.labels == labels]
        assert len(found) <= 1, found
        return found[0] if found else 0.0
