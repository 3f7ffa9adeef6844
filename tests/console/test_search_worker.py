"""The worker of a search: what it writes, and how often."""

from __future__ import annotations

import io
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.console.search.request import Done, Found, Progress, Range, SearchRequest, decode_answer
from moldau.testing import Broker
from tests.console.page.filling import fill

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

COUNT = 2_000


def test_what_is_found_soon_after_another_is_shown_with_others(
    shared_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moldau.console.search import reading, worker

    shared_broker.create_topic("shown", 1)
    for first in range(0, COUNT, 100):
        fill(shared_broker, "shown", [(str(number), "v") for number in range(first, first + 100)])
    # A query for every few hundred records, in no time at all.
    monkeypatch.setattr(reading, "_FETCH_BYTES", 1 << 10)
    monkeypatch.setattr(reading, "_BATCH_BYTES", 1 << 10)
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: 1000.0))

    out = io.BytesIO()
    request = SearchRequest(
        shared_broker.bootstrap, {}, "shown", [Range(0, 0, COUNT)], "offset % 50 = 0", COUNT, 600.0
    )
    worker.Search(request, out).run()

    answers = _answers(out.getvalue())
    found = [each for each in answers if isinstance(each, Found)]
    offsets = [record.offset for each in found for record in each.records]
    assert offsets == list(range(0, COUNT, 50))
    # The first at once, all others when there was time, which was at the end.
    assert len(found) == 2
    assert len(found[0].records) < 10
    assert isinstance(answers[-2], Progress)
    assert answers[-2].found == len(offsets)
    assert isinstance(answers[-1], Done)


def _answers(data: bytes) -> list[Any]:
    found = []
    while data:
        (size,) = struct.unpack_from(">I", data)
        found.append(decode_answer(data[4 : 4 + size]))
        data = data[4 + size :]
    return found
