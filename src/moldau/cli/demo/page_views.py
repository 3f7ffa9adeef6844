"""Made-up activity of a web shop: who viewed which page, how fast it came, and what failed.

The same seed gives the same page views to the byte, so that a demonstration, a test and a
measurement can each say what must come out of them. Some things are as on a real site: few pages
get most views, people come in sessions and think between two pages, and errors come in bursts that
hit one part of the site and slow it down.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import NamedTuple, TypeVar

import msgspec

TOPIC = "page-views"

T = TypeVar("T")

# When nothing else is said: the same for everyone, as a seed would be worth little otherwise.
START = datetime(2025, 3, 3, 9, 0, tzinfo=UTC)

PRODUCTS = 400
ARTICLES = 60
PAGES_PER_SESSION = 6.0
# Where half of all pauses between two pages are shorter, and how far they spread.
THINK_S, THINK_SPREAD = 8.0, 0.9
# Before `start`, so that the first second already looks like any other.
WARM_UP_S = 120.0

ERROR_RATE, MISSING_RATE = 0.004, 0.01
BURST_EVERY_S, BURST_LASTS_S = 150.0, 25.0
BURST_ERROR_RATE, BURST_SLOWER = 0.35, 4.0

_REFERRERS = (
    (None, 40),
    ("https://www.google.com/", 30),
    ("https://duckduckgo.com/", 6),
    ("https://news.ycombinator.com/", 5),
    ("https://www.reddit.com/r/coffee", 7),
    ("https://mail.example.org/newsletter", 12),
)
_COUNTRIES = (
    ("CZ", 30), ("DE", 24), ("AT", 12), ("PL", 9), ("SK", 8), ("FR", 6), ("GB", 5), ("US", 4),
    ("JP", 2),
)  # fmt: skip
_TIMEDELTA_MS = timedelta(milliseconds=1)


class PageView(msgspec.Struct, frozen=True):
    """One page, shown to one user. `referrer` is where they came from, if they said."""

    event_id: str
    time: datetime
    user: str
    session: str
    page: str
    referrer: str | None
    status: int
    latency_ms: float
    country: str

    def encode(self) -> bytes:
        """Return the value of its record: a JSON object."""
        return _encode(self)

    @property
    def key(self) -> bytes:
        """One user's views are in one partition, in order."""
        return self.user.encode()


_encode = msgspec.json.Encoder().encode


class _Page(NamedTuple):
    """`part` is the part of the site that fails as one; `latency_ms` is the median."""

    path: str
    part: str
    latency_ms: float
    weight: float


class _Session(NamedTuple):
    """A visit under way; compared by the time of its next view, then by its number."""

    next_ms: float
    number: int
    user: int
    left: int
    page: str | None


class _Burst(NamedTuple):
    start_ms: float
    end_ms: float
    part: str


class Activity:
    """Page views without end, in the order of their times; iterate it once.

    `views_per_s` is how many there are in a second of the site's time, on average.
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        start: datetime = START,
        views_per_s: float = 200.0,
        users: int = 2000,
    ) -> None:
        if views_per_s <= 0 or users < 1:
            raise ValueError("there must be users, and more than 0 views per second")
        self._random = random.Random(seed)
        self._name = f"{seed & 0xFFFFFFFF:08x}"
        self._start = start
        self._between_ms = 1000 * PAGES_PER_SESSION / views_per_s
        self._users = _zipf(users, 0.6)
        self._countries = [_pick(self._random, _COUNTRIES) for _ in range(users)]
        self._pages = _site()
        self._weights = list(accumulate(page.weight for page in self._pages))
        self._parts = sorted({page.part for page in self._pages})
        self._sessions = 0

    def __iter__(self) -> Iterator[PageView]:
        uniform, lognormal = self._random.random, self._random.lognormvariate
        number = 0
        arrival = -1000 * WARM_UP_S
        burst = self._burst_after(0.0)
        visits: list[_Session] = []
        while True:
            while not visits or visits[0].next_ms >= arrival:
                heapq.heappush(visits, self._visit(arrival))
                arrival += self._random.expovariate(1 / self._between_ms)
            visit = visits[0]
            at_ms = visit.next_ms
            page = self._pages[bisect(self._weights, uniform() * self._weights[-1])]
            if at_ms > burst.end_ms:
                burst = self._burst_after(burst.end_ms)
            fails = page.part == burst.part and at_ms >= burst.start_ms
            if at_ms >= 0:
                status = self._status(uniform(), fails)
                latency = page.latency_ms * lognormal(0, 0.5) * (BURST_SLOWER if fails else 1)
                yield self._view(number, visit, page.path, status, latency)
                number += 1
            if visit.left == 0:
                heapq.heappop(visits)
            else:
                think_ms = 1000 * THINK_S * lognormal(0, THINK_SPREAD)
                following = _Session(
                    at_ms + think_ms, visit.number, visit.user, visit.left - 1, page.path
                )
                heapq.heapreplace(visits, following)

    def _visit(self, at_ms: float) -> _Session:
        self._sessions += 1
        user = bisect(self._users, self._random.random() * self._users[-1])
        # At least one page, and a tail of people who read on and on.
        more = int(self._random.expovariate(1 / (PAGES_PER_SESSION - 0.5)))
        return _Session(at_ms, self._sessions, user, more, None)

    def _view(
        self, number: int, visit: _Session, path: str, status: int, latency_ms: float
    ) -> PageView:
        came_from = visit.page
        if came_from is None:
            referrer = _pick(self._random, _REFERRERS)
        else:
            referrer = "https://shop.example.org" + came_from
        return PageView(
            f"{self._name}-{number:08d}",
            self._start + int(visit.next_ms) * _TIMEDELTA_MS,
            f"user-{visit.user:05d}",
            f"{self._name}-s{visit.number:07d}",
            path,
            referrer,
            status,
            round(latency_ms, 1),
            self._countries[visit.user],
        )

    @staticmethod
    def _status(chance: float, in_burst: bool) -> int:
        if in_burst and chance < BURST_ERROR_RATE:
            return 503
        if chance < ERROR_RATE:
            return 500
        return 404 if chance < ERROR_RATE + MISSING_RATE else 200

    def _burst_after(self, at_ms: float) -> _Burst:
        start = at_ms + 1000 * self._random.expovariate(1 / BURST_EVERY_S)
        end = start + 1000 * self._random.expovariate(1 / BURST_LASTS_S)
        return _Burst(start, end, self._random.choice(self._parts))


def _site() -> list[_Page]:
    """Popularity falls with the rank, as Zipf has it, within products and articles."""
    return [
        _Page("/", "home", 35, 22.0),
        _Page("/search", "search", 160, 12.0),
        _Page("/cart", "checkout", 80, 7.0),
        _Page("/checkout", "checkout", 240, 3.0),
        _Page("/account", "account", 90, 4.0),
        *(_Page(f"/products/{n}", "products", 60, 40 / n) for n in range(1, PRODUCTS + 1)),
        *(_Page(f"/blog/{n}", "blog", 45, 8 / n) for n in range(1, ARTICLES + 1)),
    ]


def _zipf(count: int, exponent: float) -> list[float]:
    return list(accumulate(1 / rank**exponent for rank in range(1, count + 1)))


def _pick(source: random.Random, choices: tuple[tuple[T, int], ...]) -> T:
    total = sum(weight for _, weight in choices)
    point = source.random() * total
    for value, weight in choices:
        point -= weight
        if point < 0:
            return value
    return choices[-1][0]
