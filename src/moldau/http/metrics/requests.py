"""Requests: how many came for each API, how long they took, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.broker.metrics import Metrics
from moldau.broker.net.exit import Exit
from moldau.http.metrics.families import Families, labels, quantile
from moldau.wire.apis import Api
from moldau.wire.errors import Error

_QUANTILES = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}
# Quantiles are of the requests since the last change of windows but one.
_WINDOW_S = 60.0
_TIMES = "kafka_network_requestmetrics_totaltimems"


class Requests:
    """The requests of one broker. Event loop only."""

    def __init__(self, metrics: Metrics, exit: Exit) -> None:
        self._metrics = metrics
        self._exit = exit
        self._since = 0.0
        # The buckets by API at the last two changes of windows.
        self._before: dict[int, list[int]] = {}
        self._last: dict[int, list[int]] = {}

    def add_to(self, families: Families, now: float) -> None:
        """Add the families to those of a scrape."""
        for api, histogram in self._metrics.histograms():
            name = name_of(api)
            request = labels(request=name)
            families.counter(
                "kafka_network_requestmetrics_requests_total",
                "Requests that were answered.",
                histogram.count,
                request,
            )
            recent = _since(histogram.buckets, self._before.get(api))
            times = families.family(
                _TIMES,
                "summary",
                "Time from a request's arrival to its answer, of the last minute or two, in ms.",
            )
            for text, share in _QUANTILES.items():
                times.add(quantile(recent, share) * 1000, labels(request=name, quantile=text))
            times.lines.append(f"{_TIMES}_sum{request} {histogram.seconds * 1000}\n")
            times.lines.append(f"{_TIMES}_count{request} {histogram.count}\n")
            families.histogram(
                "moldau_request_seconds",
                "Time from a request's arrival to its answer; long polls wait for records.",
                histogram,
                {"api": name},
            )
        for (api, code), count in sorted(self._metrics.errors.items()):
            families.counter(
                "kafka_network_requestmetrics_errors_total",
                "Errors in answers.",
                count,
                labels(request=name_of(api), error=_error_name(code)),
            )
        families.counter(
            "moldau_throttled_seconds_total",
            "Time that clients were told to wait because of quotas.",
            self._exit.throttled_ms / 1000,
        )
        self._turn_window(now)

    def _turn_window(self, now: float) -> None:
        if now - self._since >= _WINDOW_S:
            self._since = now
            self._before = self._last
            self._last = {api: list(each.buckets) for api, each in self._metrics.histograms()}


def _since(buckets: list[int], before: list[int] | None) -> list[int]:
    if before is None:
        return buckets
    recent = [now - then for now, then in zip(buckets, before, strict=True)]
    return recent if any(recent) else buckets


def name_of(api: int) -> str:
    """Return Kafka's name of an API."""
    found = _NAMES.get(api)
    return f"Api{api}" if found is None else found


def _error_name(code: int) -> str:
    return Error(code).name if code in _CODES else str(code)


_CODES = frozenset(int(each) for each in Error)
_NAMES: Mapping[int, str] = {
    int(each): "".join(word.capitalize() for word in each.name.split("_")) for each in Api
}
