"""The made-up activity: the same for a seed, and like that of a site."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import islice, pairwise

import pytest

from moldau.cli.demo.page_views import START, Activity, PageView


def views(count: int, seed: int = 1, views_per_s: float = 100) -> list[PageView]:
    return list(islice(Activity(seed, views_per_s=views_per_s), count))


def test_a_seed_gives_the_same_bytes_and_another_one_others() -> None:
    one = [view.encode() for view in views(500)]
    assert one == [view.encode() for view in views(500)]
    assert one != [view.encode() for view in views(500, seed=2)]


def test_an_event_is_a_json_object_keyed_by_its_user() -> None:
    view = views(1)[0]
    event = json.loads(view.encode())
    assert set(event) == {
        "event_id", "time", "user", "session", "page", "referrer", "status", "latency_ms",
        "country",
    }  # fmt: skip
    assert datetime.fromisoformat(event["time"]) == view.time
    assert view.time.tzinfo is UTC
    assert view.key == event["user"].encode()


def test_views_come_in_order_at_about_the_rate_that_is_asked_for() -> None:
    found = views(20_000)
    assert all(one.time <= other.time for one, other in pairwise(found))
    assert found[0].time >= START
    seconds = (found[-1].time - START).total_seconds()
    assert 60 < 20_000 / seconds < 140
    assert len({view.event_id for view in found}) == 20_000


def test_few_pages_get_most_views_and_errors_come_in_bursts() -> None:
    found = views(60_000)
    pages = Counter(view.page for view in found)
    top = sum(count for _, count in pages.most_common(20))
    assert len(pages) > 300
    assert top > len(found) / 2
    errors = Counter(int(view.time.timestamp()) // 10 for view in found if view.status >= 500)
    assert max(errors.values()) > 4 * sum(errors.values()) / len(errors)
    assert {200, 404, 500, 503} == {view.status for view in found}


def test_a_session_is_one_users_and_goes_from_page_to_page() -> None:
    sessions = defaultdict(list)
    for view in views(20_000):
        sessions[view.session].append(view)
    assert len(sessions) > 2000
    for visit in sessions.values():
        assert len({(view.user, view.country) for view in visit}) == 1
        for one, following in pairwise(visit):
            assert following.referrer is not None
            assert following.referrer.endswith(one.page)
    assert None in {visit[0].referrer for visit in sessions.values()}


@pytest.mark.parametrize("wrong", [{"views_per_s": 0.0}, {"users": 0}])
def test_a_site_without_visitors_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="there must be users"):
        Activity(**wrong)  # type: ignore[arg-type]
