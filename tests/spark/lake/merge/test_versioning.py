"""Tables with history against an oracle: plain Python over the same events."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from moldau.spark.lake.errors import LakeError
from moldau.spark.lake.merge.older import Order
from moldau.spark.lake.order import DELETES
from tests.spark.lake.merge.kinds import KINDS
from tests.spark.lake.merge.merging import Merging

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("p", pa.string()),
        ("lsn", pa.int64()),
        ("v", pa.int64()),
        ("valid_from", pa.int64()),
        ("valid_to", pa.int64()),
        ("is_current", pa.bool_()),
    ]
)
ORDER = Order(("lsn",))


@dataclass(frozen=True)
class Event:
    k: int
    lsn: int
    v: int = 0
    deletes: bool = False
    # The partition may change from version to version.
    p: str = "a"

    @property
    def moment(self) -> int:
        """Several events may have the same."""
        return self.lsn // 2 * 10

    def staged(self) -> dict[str, Any]:
        return {
            "k": self.k,
            "p": self.p,
            "lsn": self.lsn,
            "v": self.v,
            "valid_from": self.moment,
            "valid_to": None,
            "is_current": True,
            DELETES: self.deletes,
        }


def history(events: Sequence[Event]) -> list[dict[str, Any]]:
    """The oracle: of each key all events in order, each valid until the next."""
    known = {(event.k, event.lsn): event for event in events}
    ordered = [known[place] for place in sorted(known)]
    rows = []
    for event, following in pairwise([*ordered, None]):
        assert event is not None
        is_last = following is None or following.k != event.k
        end = None if following is None or is_last else following.moment
        if not event.deletes:
            row = event.staged() | {"valid_to": end, "is_current": is_last}
            rows.append({name: row[name] for name in SCHEMA.names})
    return rows


def versions(table: Merging) -> list[dict[str, Any]]:
    return sorted(table.rows(), key=lambda row: (row["k"], row["lsn"]))


def staged(events: Sequence[Event]) -> list[dict[str, Any]]:
    return [each.staged() for each in {(event.k, event.lsn): event for event in events}.values()]


STEPS = st.lists(
    st.tuples(
        st.lists(
            st.builds(
                Event,
                k=st.integers(0, 3),
                lsn=st.integers(0, 12),
                v=st.integers(0, 99),
                deletes=st.booleans(),
                p=st.sampled_from(["a", "b"]),
            ),
            max_size=10,
        ),
        st.sampled_from(["", "again", "crash", "compaction", "rival"]),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=6,
)


of_either_kind = pytest.mark.parametrize("kind", KINDS)


# Smaller examples of a failure would take minutes to find.
@pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=pytest.mark.slow)])
@settings(max_examples=settings().max_examples // 16, phases=[Phase.explicit, Phase.generate])
@given(STEPS)
def test_the_history_follows_from_the_events_in_whatever_order_they_come(
    kind: str, steps: list[tuple[list[Event], str, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = KINDS[kind](Path(folder, "t"), SCHEMA, ("k",), ORDER, partition_by=("p",))
        seen: list[Event] = []
        for events, trouble, files in steps:
            seen += events
            merge = table.version(staged(events), files)
            if trouble == "crash":
                merge.against(table.target())
                merge = table.version(staged(events), files)
            if trouble == "rival":
                rival = [Event(2, len(seen), 1)]
                seen[len(seen) - len(events) : len(seen) - len(events)] = rival
                table.commit(merge, between=lambda: table.commit(table.version(staged(rival))))  # noqa: B023
            else:
                between = table.compact if trouble == "compaction" else _nothing
                table.commit(merge, between=between)
            if trouble == "again":
                table.commit(table.version(staged(seen)))
            assert versions(table) == history(seen)


def _nothing() -> None:
    pass


@of_either_kind
def test_a_late_event_finds_its_place_and_a_delete_ends_the_last_version(
    kind: str, tmp_path: Path
) -> None:
    table = KINDS[kind](tmp_path / "t", SCHEMA, ("k",), ORDER)

    def after(*events: Event) -> list[tuple[int, int | None, bool]]:
        table.commit(table.version(staged(events)))
        return [(row["valid_from"], row["valid_to"], row["is_current"]) for row in versions(table)]

    assert after(Event(1, 2), Event(1, 8)) == [(10, 40, False), (40, None, True)]
    assert after(Event(1, 4)) == [(10, 20, False), (20, 40, False), (40, None, True)]
    assert after(Event(1, 10, deletes=True))[2:] == [(40, 50, False)]
    # Between the last version and its delete, and after the delete.
    assert after(Event(1, 9, v=1))[2:] == [(40, 40, False), (40, 50, False)]
    assert after(Event(1, 12))[4:] == [(60, None, True)]
    # A delete that came before its version.
    assert after(Event(2, 6, deletes=True))[5:] == []
    assert after(Event(2, 4))[5:] == [(20, 30, False)]


@of_either_kind
def test_files_without_a_version_that_changes_stay(kind: str, tmp_path: Path) -> None:
    table = KINDS[kind](tmp_path / "t", SCHEMA, ("k",), ORDER)
    for first in range(0, 50, 10):
        table.commit(table.version(staged([Event(k, 1) for k in range(first, first + 10)]), 1))
    before = table.files()
    table.commit(table.version(staged([Event(23, 2)]), 1))
    after = table.files()
    assert (len(before - after), len(after - before)) == (1, 2)


@of_either_kind
def test_another_order_for_the_same_history_is_refused(kind: str, tmp_path: Path) -> None:
    table = KINDS[kind](tmp_path / "t", SCHEMA, ("k",), ORDER)
    table.commit(table.version(staged([Event(1, 1, deletes=True)])))
    table.order = Order(("v",))
    with pytest.raises(LakeError, match=r"a history by the keys \['k'\] in the order of \['lsn'\]"):
        table.commit(table.version(staged([Event(1, 2)])))
