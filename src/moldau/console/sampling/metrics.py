"""Metrics of brokers over HTTP: what they do not tell over Kafka's protocol, such as bytes out.

Any exporter with Kafka's usual names will do: Moldau's own, or the JMX exporter's.
"""

from __future__ import annotations

import base64
import re
import time
import urllib.error
import urllib.request
from collections.abc import Sequence

from moldau.security.client import ClientSecurity

_WITHIN_S = 3.0
_MOST_BYTES = 32 << 20
_LINE = re.compile(
    rb"^kafka_server_brokertopicmetrics_bytesout_total(?:\{([^}]*)\})? (\S+)", re.MULTILINE
)
_TOPIC = re.compile(rb'topic="([^"]+)"')


class BytesOut:
    """How many bytes a second consumers take, of all brokers that are named. For one thread.

    They are asked with this USER:PASSWORD, or that of `security`.
    """

    def __init__(
        self, urls: Sequence[str], security: ClientSecurity | None = None, login: str = ""
    ) -> None:
        self._urls = urls
        self._security = security
        self._login = login
        self._before: dict[str, tuple[float, float]] = {}

    def rate(self) -> float | None:
        """Return the rate since the last call; None if no broker tells, or at first."""
        rates = []
        for url in self._urls:
            total = self._total(url)
            if total is None:
                self._before.pop(url, None)
                continue
            now = time.monotonic()
            before = self._before.get(url)
            self._before[url] = now, total
            if before is not None and now > before[0]:
                # A counter that began again has grown from 0.
                grown = total - before[1] if total >= before[1] else total
                rates.append(grown / (now - before[0]))
        return sum(rates) if rates else None

    def _total(self, url: str) -> float | None:
        request = urllib.request.Request(url)
        login = self._login
        if not login and self._security is not None:
            login = self._security.http_login(url)
        if login:
            encoded = base64.b64encode(login.encode()).decode()
            request.add_header("Authorization", f"Basic {encoded}")
        context = None if self._security is None else self._security.context()
        try:
            with urllib.request.urlopen(request, timeout=_WITHIN_S, context=context) as answer:
                return total_of(answer.read(_MOST_BYTES))
        except (OSError, ValueError):
            return None


def total_of(text: bytes) -> float | None:
    """Return the bytes that a broker has sent: the series of all topics, or the sum of those."""
    total: float | None = None
    by_topic = 0.0
    found = False
    for labels, number in _LINE.findall(text):
        try:
            value = float(number)
        except ValueError:
            continue
        found = True
        if _TOPIC.search(labels):
            by_topic += value
        else:
            total = (total or 0.0) + value
    if not found:
        return None
    return by_topic if total is None else total
