"""The console's page in a browser: how soon it is there, and whether a long list stays fluid."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import moldau
from bench.scale import amounts_of
from moldau.bench.broker import BrokerUnderTest
from moldau.bench.child import Child
from moldau.bench.errors import BenchFailed, Unavailable
from moldau.bench.results import Row, Target, figure, percentile
from moldau.bench.workbench import Workbench

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Consoles = Callable[[Workbench, BrokerUnderTest], AbstractContextManager[tuple[Child, str]]]

_LOADED_S = Target(1.0)
# The browser paints 60 times a second, a little more or less by its clock.
_FRAMES = Target(59, at_least=True)
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
_WITHIN_MS = 60_000

# Messages as a live view gets them, in place of the console's own stream: many at first, and then
# some every tenth of a second.
_FLOOD = """({topic, count, each}) => {
  const Real = window.EventSource;
  const made = (first, length) => JSON.stringify(Array.from({ length }, (_, i) => ({
    partition: 0, offset: first + i, timestamp: Date.now(), timestamp_type: "create",
    key: { encoding: "text", bytes: 4, text: `k${(first + i) % 100}` },
    value: { encoding: "json", bytes: 60, json: { id: first + i, amount: i / 7, city: "Praha" } },
    headers: [], size: 64,
  })));
  window.EventSource = class extends Real {
    constructor(url) {
      const isTail = url.includes("/tail");
      super(isTail ? "api/events" : url);
      if (!isTail) return;
      const give = (first, length) =>
        this.dispatchEvent(new MessageEvent("messages", { data: made(first, length) }));
      setTimeout(() => {
        for (let at = 0; at < count; at += 1000) give(at, Math.min(1000, count - at));
        let at = count;
        setInterval(() => { give(at, each); at += each; }, 100);
      });
    }
  };
  location.hash = `#/topics/${topic}?mode=live`;
}"""

# What the browser does with next to nothing: a box as long, and nothing in it.
_EMPTY = """<div role="listbox" style="height: 600px; overflow: auto">
<div style="height: {height}px"></div></div>"""
_ROW_HEIGHT = 32

# Scrolls up and down through the whole list, and says when each frame was painted.
_SCROLL = """(seconds) => new Promise((done) => {
  const box = document.querySelector("[role=listbox]");
  const times = [];
  const begun = performance.now();
  const step = (now) => {
    times.push(now);
    const phase = ((now - begun) / 2000) % 2;
    const at = phase < 1 ? phase : 2 - phase;
    box.scrollTop = at * (box.scrollHeight - box.clientHeight);
    if (now - begun < seconds * 1000) requestAnimationFrame(step);
    else done(times);
  };
  requestAnimationFrame(step);
})"""


def measure_page(bench: Workbench, console: Consoles) -> Row:
    """Unavailable where there is no browser, or where the page is not built."""
    amounts = amounts_of(bench.scale)
    count, topics = amounts.console_messages, amounts.console_topics
    with _browser() as browser, bench.broker() as broker:
        topic = bench.new_topic()
        broker.create_topic(topic)
        bench.say("console: the page in a browser")
        with console(bench, broker) as (_, url):
            loaded = [_loaded_s(browser, url) for _ in range(bench.scale.repeats + 1)][1:]
            seconds = max(bench.scale.requests_s, 0.5)
            empty, messages, listed = [], [], []
            for _ in range(bench.scale.repeats):
                empty.append(_empty(browser, count, seconds))
                messages.append(_messages(browser, url, topic, count, seconds))
                listed.append(_topics(browser, url, topics, seconds))
    return Row(
        "console",
        f"the page, from loopback, with {count:,} messages or {topics:,} topics in its list",
        (
            figure("loaded, with what it shows first", "s", loaded, _LOADED_S),
            figure(
                "frames of messages, scrolled while more come", "1/s", _rates(messages), _FRAMES
            ),
            figure("99 of 100 are painted within", "ms", _slowest(messages)),
            figure("frames of topics, scrolled", "1/s", _rates(listed), _FRAMES),
            figure("99 of 100 are painted within", "ms", _slowest(listed)),
            figure("frames of an empty box, the browser's limit here", "1/s", _rates(empty)),
            figure("99 of 100 are painted within", "ms", _slowest(empty)),
        ),
    )


def _rates(runs: list[list[float]]) -> list[float]:
    return [(len(times) - 1) * 1000 / (times[-1] - times[0]) for times in runs]


def _slowest(runs: list[list[float]]) -> list[float]:
    return [percentile([b - a for a, b in pairwise(times)], 99) for times in runs]


@contextmanager
def _browser() -> Iterator[Browser]:
    if find_spec("playwright") is None:
        raise Unavailable("playwright not installed: pip install '.[browser]'")
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        raise Unavailable(f"there is no browser on the PATH: none of {', '.join(_BROWSERS)}")
    if not (Path(moldau.__file__).parent / "console/page/index.html").exists():
        raise Unavailable("the console's page is not built: run `make console`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def _page(browser: Browser) -> Iterator[Page]:
    """A page with nothing in its cache."""
    context = browser.new_context(viewport={"width": 1360, "height": 850})
    try:
        page = context.new_page()
        page.set_default_timeout(_WITHIN_MS)
        yield page
    finally:
        context.close()


def _loaded_s(browser: Browser, url: str) -> float:
    """Return how long it took from the navigation to the numbers of the first page."""
    with _page(browser) as page:
        page.goto(url, wait_until="commit")
        page.wait_for_selector("main a[href='#/topics']")
        return float(page.evaluate("performance.now()")) / 1000


def _messages(browser: Browser, url: str, topic: str, count: int, seconds: float) -> list[float]:
    with _page(browser) as page:
        page.goto(url)
        page.wait_for_selector("main h1")
        given: dict[str, Any] = {"topic": topic, "count": count, "each": 100}
        page.evaluate(_FLOOD, given)
        page.wait_for_selector("[role=listbox] [role=option]")
        return _scrolled(page, seconds)


def _topics(browser: Browser, url: str, count: int, seconds: float) -> list[float]:
    topics = [
        {
            "name": f"load.area-{number % 50:02}.topic-{number:04}",
            "internal": False,
            "partitions": 3,
            "replication": 1,
            "messages": number,
            "bytes": number * 100,
            "under_replicated": 0,
            "rate_msgs": number / 7,
        }
        for number in range(count)
    ]
    with _page(browser) as page:
        page.route("**/api/topics*", lambda route: route.fulfill(json={"topics": topics}))
        page.goto(f"{url}/#/topics")
        page.wait_for_selector("[role=listbox] [role=option]")
        return _scrolled(page, seconds)


def _empty(browser: Browser, rows: int, seconds: float) -> list[float]:
    with _page(browser) as page:
        page.set_content(_EMPTY.format(height=rows * _ROW_HEIGHT))
        return _scrolled(page, seconds)


def _scrolled(page: Page, seconds: float) -> list[float]:
    times: list[float] = page.evaluate(_SCROLL, seconds)
    if len(times) < 3:
        raise BenchFailed("the browser painted no frames")
    return times
